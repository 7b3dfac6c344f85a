use std::fmt;

/// What can go wrong with a pack. A tool that fails is no error of the pack: see [`ToolResult::is_error`].
///
/// [`ToolResult::is_error`]: crate::ToolResult::is_error
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pack has no tool of this name.
    NoSuchTool(String),
    /// The pack has two tools of this name.
    DuplicateTool(String),
    /// The arguments do not fit the schema of the tool.
    Input(String),
    /// The options of the server are wrong.
    Server(String),
    /// The server refuses the pack for good: its manifest, or its credential.
    Refused {
        /// The name of the gRPC code.
        code: String,
        /// The server's text.
        text: String,
    },
    /// The server refuses the tools of a reload. The former ones stay in force.
    Reload(String),
    /// There is no connection.
    NotConnected,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTool(name) => write!(f, "the pack has no tool {name:?}"),
            Self::DuplicateTool(name) => write!(f, "the pack has two tools {name:?}"),
            Self::Input(text) => write!(f, "the arguments do not fit the schema: {text}"),
            Self::Server(text) => f.write_str(text),
            Self::Refused { code, text } => write!(f, "the server refuses the pack: {code}: {text}"),
            Self::Reload(text) => write!(f, "the server refuses the tools: {text}"),
            Self::NotConnected => f.write_str("the pack is not connected"),
        }
    }
}

impl std::error::Error for Error {}
