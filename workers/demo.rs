//! `turnwheel demo`: the demo API as a process of its own, for a cluster whose agents call it.

use crate::roles;
use clap::Args;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  turnwheel demo                          on 127.0.0.1:8090, the address in the files of agents/
  turnwheel demo --listen 127.0.0.1:9000  on another address; change it in the agent files, too
  curl http://127.0.0.1:8090/log          print the calls and their effects

Its data is invented and in memory, and it has no authentication: do not listen on an address that others can reach. \
Workers call it only if its address, such as 127.0.0.1, is in the setting http.allow_private.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", value_parser = address,
        default_value_t = SocketAddr::from(([127, 0, 0, 1], lab::demo::PORT)))]
    listen: SocketAddr,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9000".to_owned())
}

impl Demo {
    pub async fn run(self) -> anyhow::Result<()> {
        roles::demo(self.listen).await
    }
}
