#!/usr/bin/env node
// Runs the program `turnwheel`, which is in the package of this machine's platform.
"use strict";
const { spawn } = require("node:child_process");

const platform = `@turnwheel/${process.platform}-${process.arch}`;

function programPath() {
  try {
    return require.resolve(`${platform}/bin/turnwheel`);
  } catch {
    console.error(`turnwheel: the package ${platform} is not installed.`);
    console.error("Install it in the same version as the package turnwheel, without `--omit=optional`.");
    console.error("If there is no such package for this platform, build Turnwheel from source.");
    process.exit(1);
  }
}

const child = spawn(programPath(), process.argv.slice(2), { stdio: "inherit" });

// The program decides when it ends, because a worker first finishes its turns. A terminal sends Ctrl-C to both
// processes, so this one does not forward SIGINT: a second SIGINT would stop the program immediately.
process.on("SIGINT", () => {});
const forwarded = ["SIGTERM", "SIGHUP"];
for (const signal of forwarded) process.on(signal, () => child.kill(signal));

child.on("error", (error) => {
  console.error(`turnwheel: cannot start ${child.spawnfile}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const handled of ["SIGINT", ...forwarded]) process.removeAllListeners(handled);
  process.kill(process.pid, signal);
});
