use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Call, Error, Server, Tool, ToolResult, connection::Connection, server, v1};

const DEFAULT_PARALLEL: usize = 16;

/// Tools that belong together, under one name. A clone is the same pack.
#[derive(Clone, Debug)]
pub struct Pack {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    id: String,
    version: String,
    description: String,
    max_parallel: usize,
    tools: Vec<Arc<Tool>>,
    /// The connection to the server; `None` while there is none.
    current: Option<Arc<Connection>>,
}

impl Pack {
    /// Returns a pack without tools. The server knows it by `id`: 1 to 63 of the characters a-z 0-9 -, beginning with a
    /// letter. The version is for people.
    pub fn new(id: impl Into<String>, version: impl Into<String>) -> Self {
        let state = State { id: id.into(), version: version.into(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the tools are for.
    pub fn description(self, text: impl Into<String>) -> Self {
        self.state().description = text.into();
        self
    }

    /// Sets how many calls run at once: 16 without it.
    pub fn max_parallel(self, calls: usize) -> Self {
        self.state().max_parallel = calls;
        self
    }

    /// Adds a tool without options. [`Tool::new`] says what the function takes and returns.
    ///
    /// # Panics
    ///
    /// When the pack has a tool of this name.
    pub fn tool<In, Out, Err, Fut>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        f: impl Fn(In, Call) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        In: DeserializeOwned + JsonSchema,
        Out: Serialize + JsonSchema + 'static,
        Err: fmt::Display,
        Fut: Future<Output = Result<Out, Err>> + Send + 'static,
    {
        self.with(Tool::new(name, description, f))
    }

    /// Adds a tool.
    ///
    /// # Panics
    ///
    /// When the pack has a tool of this name.
    pub fn with(self, tool: Tool) -> Self {
        if let Err(err) = self.add(tool) {
            panic!("{err}");
        }
        self
    }

    /// Adds a tool to a pack that may be connected. [`Pack::reload`] tells the server.
    ///
    /// # Errors
    ///
    /// The pack has a tool of this name.
    pub fn add(&self, tool: Tool) -> Result<(), Error> {
        let mut state = self.state();
        if state.tools.iter().any(|t| t.definition.name == tool.definition.name) {
            return Err(Error::DuplicateTool(tool.definition.name));
        }
        state.tools.push(Arc::new(tool));
        Ok(())
    }

    /// Takes a tool out of the pack. [`Pack::reload`] tells the server.
    pub fn remove(&self, name: &str) {
        self.state().tools.retain(|t| t.definition.name != name);
    }

    /// Returns what the pack tells a server.
    pub fn manifest(&self) -> v1::PackManifest {
        let state = self.state();
        v1::PackManifest {
            pack_id: state.id.clone(),
            version: state.version.clone(),
            description: state.description.clone(),
            tools: state.tools.iter().map(|t| t.definition.clone()).collect(),
            max_parallel_calls: i32::try_from(state.max_parallel).unwrap_or(i32::MAX), // the server checks it
        }
    }

    /// Runs a tool without a server, as a test does, and checks the arguments against the schema.
    ///
    /// # Errors
    ///
    /// The pack has no such tool, or the arguments do not fit. A tool that fails returns a result with `is_error`.
    pub async fn call(&self, name: &str, input: impl Serialize) -> Result<ToolResult, Error> {
        let tool = self.find(name)?;
        let value = serde_json::to_value(input).map_err(|err| Error::Input(err.to_string()))?;
        let checker = jsonschema::validator_for(&tool.input).map_err(|err| Error::Input(err.to_string()))?;
        if let Some(err) = checker.iter_errors(&value).next() {
            return Err(Error::Input(format!("{}: {err}", err.instance_path())));
        }
        Ok(tool.answer(value.to_string().into_bytes(), Call::default()).await)
    }

    /// Offers the tools on a server until `shutdown` is done. The pack then takes no new calls, lets those that run
    /// end, and the method returns. When the connection is lost, the pack connects again, and waits longer after each
    /// failure.
    ///
    /// # Errors
    ///
    /// The server refuses the pack for good: its manifest, or its credential.
    pub async fn serve(&self, server: Server, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        server::serve(self, server, std::pin::pin!(shutdown)).await
    }

    /// Tells the server which tools the pack has now. Calls under way go on.
    ///
    /// # Errors
    ///
    /// The server refuses the tools, and the former ones stay in force; or there is no connection, and the next one has
    /// the tools.
    pub async fn reload(&self) -> Result<(), Error> {
        let current = self.state().current.clone();
        current.ok_or(Error::NotConnected)?.reload(self).await
    }

    pub(crate) fn id(&self) -> String {
        self.state().id.clone()
    }

    pub(crate) fn parallel(&self) -> usize {
        match self.state().max_parallel {
            0 => DEFAULT_PARALLEL,
            calls => calls,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Tool>, Error> {
        let state = self.state();
        let tool = state.tools.iter().find(|t| t.definition.name == name);
        tool.cloned().ok_or_else(|| Error::NoSuchTool(name.to_owned()))
    }

    /// Makes a connection the one of the pack.
    pub(crate) fn attach(&self, connection: &Arc<Connection>) {
        self.state().current = Some(connection.clone());
    }

    /// Ends that, unless another connection has replaced it.
    pub(crate) fn detach(&self, connection: &Arc<Connection>) {
        self.state().current.take_if(|current| Arc::ptr_eq(current, connection));
    }
}
