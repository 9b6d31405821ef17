//! Examples for the `--help` of commands without a file of their own.

pub const DEV: &str = "\
Examples:
  turnwheel dev                                      then, elsewhere: turnwheel chat --agent sales
  turnwheel --set gateway.listen=127.0.0.1:9000 dev  use another port
  turnwheel --set data_dir=/tmp/try dev              store the data elsewhere
  turnwheel --log turnwheel=debug dev                log more

The gateway listens on gateway.listen (127.0.0.1:8080), the demo API on 127.0.0.1:8090, and the data is in data_dir \
(data). It applies the files of agents_dir and workflows_dir when it starts and whenever they change. Without agents_dir \
it uses the built-in agents. Ctrl-C stops it; a second Ctrl-C stops it immediately.";

pub const WORKER: &str = "\
Examples:
  NATS_URL=nats://q:4222 MONGODB_URI=mongodb://db:27017 turnwheel worker
  turnwheel --set worker.concurrency=1024 worker     more concurrent turns
  turnwheel --set worker.drain_timeout=2m worker     more time to finish running turns when stopping
  turnwheel --log-json worker                        logs as JSON, one object per line

Start as many workers as you need, on any machine. On SIGTERM or Ctrl-C a worker starts no new turns, and finishes \
running ones within worker.drain_timeout; other workers take over the rest. A second signal stops it immediately.";

pub const SCHEDULER: &str = "\
Examples:
  NATS_URL=nats://q:4222 MONGODB_URI=mongodb://db:27017 turnwheel scheduler

One scheduler leads. A second one stands by, and takes over within seconds if the first one dies.";

pub const GATEWAY: &str = "\
Examples:
  turnwheel gateway                                                            on 127.0.0.1:8080
  TURNWHEEL_GATEWAY__TOKENS=secret turnwheel --set gateway.listen=0.0.0.0:8080 gateway
  curl -H 'Authorization: Bearer secret' http://HOST:8080/api/v1/sessions";

pub const ALL: &str = "\
Examples:
  NATS_URL=nats://q:4222 MONGODB_URI=mongodb://db:27017 turnwheel all
  turnwheel --set gateway.listen=127.0.0.1:9000 all";

pub const COMPLETIONS: &str = "\
Examples:
  source <(turnwheel completions bash)                                        in ~/.bashrc
  turnwheel completions zsh > ~/.zfunc/_turnwheel                             with ~/.zfunc in fpath
  turnwheel completions fish > ~/.config/fish/completions/turnwheel.fish";
