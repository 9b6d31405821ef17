//! `turnwheel demo`: the demo API by itself, for a cluster whose agents call it.

use crate::roles;
use clap::Args;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  turnwheel demo                          on 127.0.0.1:8090, where the agents in agents/ look for it
  turnwheel demo --listen 127.0.0.1:9000  elsewhere; the agents' addresses have to be changed, too
  curl http://127.0.0.1:8090/log          what was called, and what took effect once

It is invented, in memory and without a password: not for addresses that others can reach. Workers call it only where \
the setting http.allow_private has its address, such as 127.0.0.1.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// The address to listen on
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
