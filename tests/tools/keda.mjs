// Validates objects of KEDA, a JSON list on standard input. Prints the problems and fails if there is one.
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { readFileSync } from "node:fs";

const kinds = { "keda.sh/v1alpha1 ScaledObject": ScaledObject };
for (const { apiVersion, kind, ...content } of JSON.parse(readFileSync(0, "utf8"))) {
  const Kind = kinds[`${apiVersion} ${kind}`];
  if (!Kind) throw new Error(`there is no schema of ${apiVersion} ${kind}`);
  new Kind(content).validate();
}
