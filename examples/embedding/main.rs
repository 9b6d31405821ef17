//! Turnwheel as a library. Each file shows one topic:
//!
//! ```sh
//! cargo run --example embedding -- tool     # Rust functions as skills and tools
//! cargo run --example embedding -- flow     # a flow that refunds money exactly once
//! cargo run --example embedding -- web      # an engine within a web server
//! ```
//!
//! `agent_test.rs` tests the agent with `turnwheel::testing`: `cargo test --example embedding`.

// A program's modules have no outside users.
#![allow(unreachable_pub)]

#[cfg(test)]
mod agent_test;
mod flow;
mod tool;
mod web;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("tool") => println!("{}", tool::run().await?.join("\n")),
        Some("flow") => println!("{}", flow::run().await?.join("\n")),
        Some("web") => {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
            println!(
                "curl http://127.0.0.1:3000/chat -d '{{\"session\":\"s1\",\"text\":\"Where is B1001?\"}}' -H content-type:application/json"
            );
            web::serve(listener, async {
                let _ = tokio::signal::ctrl_c().await;
            })
            .await?;
        }
        _ => println!("choose an example: tool, flow or web"),
    }
    Ok(())
}
