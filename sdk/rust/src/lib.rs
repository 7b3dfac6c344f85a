#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod agent;
mod call;
mod connection;
mod credential;
mod error;
mod pack;
mod server;
mod tool;
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod v1;

pub use call::{Call, Caller};
pub use credential::Credential;
pub use error::Error;
pub use pack::Pack;
pub use schemars;
pub use server::Server;
pub use tool::{NoInput, Tool, ToolResult};
