//! What the help of commands without a file of their own teaches.

pub const DEV: &str = "\
Examples:
  turnwheel dev                                      then, elsewhere: turnwheel chat --agent sales
  turnwheel --set gateway.listen=127.0.0.1:9000 dev  another port
  turnwheel --set data_dir=/tmp/try dev              another place for its file
  turnwheel --log turnwheel=debug dev                say more

Agent files of agents_dir are applied at the start and when they change; without the folder those that are compiled in.";

pub const WORKER: &str = "\
Examples:
  NATS_URL=nats://q:4222 MONGODB_URI=mongodb://db:27017 turnwheel worker
  turnwheel --set worker.concurrency=1024 worker     more turns at once
  turnwheel --set worker.drain_timeout=2m worker     more time to end the turns in hand
  turnwheel --log-json worker                        logs as JSON, one object a line

Start as many as you need, anywhere. SIGTERM or Ctrl-C: no new turns; those in hand are finished within \
worker.drain_timeout, or given to another worker. A second one stops at once.";

pub const SCHEDULER: &str = "\
Examples:
  NATS_URL=nats://q:4222 MONGODB_URI=mongodb://db:27017 turnwheel scheduler

One leads; a second one stands by, and takes over within seconds.";

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
