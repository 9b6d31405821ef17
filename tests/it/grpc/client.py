"""Talks to the authoring agent with grpcio: python3 client.py ADDRESS TOKEN.

Knows the service only by reflection (v1alpha), as old tools do. Prints one line of JSON for each response.
"""

import json
import sys

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

address, token = sys.argv[1:]
METADATA = [("authorization", f"Bearer {token}")]


class WithToken(grpc.StreamStreamClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds the token to the calls of the reflection client, which has no parameter for it."""

    def intercept_stream_stream(self, call, details, requests):
        return call(details._replace(metadata=METADATA), requests)

    def intercept_unary_stream(self, call, details, request):
        return call(details._replace(metadata=METADATA), request)


channel = grpc.intercept_channel(grpc.insecure_channel(address), WithToken())
pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
service = pool.FindServiceByName("workflow_agent.WorkflowAgent")
[method] = service.methods
assert method.name == "ProcessConversation" and method.server_streaming and not method.client_streaming
request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
converse = channel.unary_stream(
    f"/{service.full_name}/{method.name}",
    request_serializer=request_class.SerializeToString,
    response_deserializer=response_class.FromString,
)

state = None
for text in ["每天汇总", "八点"]:
    request = request_class(session_id="py", user_id="anna", user_message=text)
    if state is not None:
        request.current_state.CopyFrom(state)
    finals = 0
    for response in converse(request, timeout=60):
        if response.HasField("updated_state"):
            state = response.updated_state
        finals += response.is_final
        kind = response.WhichOneof("content")
        content = json_format.MessageToDict(getattr(response, kind), preserving_proto_field_name=True)
        print(json.dumps({kind: content}, ensure_ascii=False))
    assert finals == 1 and response.is_final, "exactly the last response is final"
stages = method.input_type.fields_by_name["current_state"].message_type.fields_by_name["stage"].enum_type
print(json.dumps({"stage": stages.values_by_number[state.stage].name, "messages": len(state.conversations)}))
