use std::{
    any::Any,
    borrow::Cow,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{Call, v1};

type Answer = Pin<Box<dyn Future<Output = Result<ToolResult, String>> + Send>>;

/// One tool of a pack: a function, its names, and its options.
pub struct Tool {
    pub(crate) definition: v1::ToolDefinition,
    pub(crate) input: Value,
    run: Box<dyn Fn(Vec<u8>, Call) -> Answer + Send + Sync>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.definition.fmt(f)
    }
}

/// The input of a tool that has no arguments.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoInput {}

// The derived schema would show the comment above to agents.
impl JsonSchema for NoInput {
    fn schema_name() -> Cow<'static, str> {
        "NoInput".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}

/// The answer of a tool, for a tool that has more to say than one value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Blocks of MCP, such as `{"type": "text", "text": "…"}`.
    pub content: Vec<Value>,
    /// The value for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The tool has failed, and the content says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolResult {
    /// Returns a result of one block of text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { content: vec![json!({"type": "text", "text": text.into()})], ..Self::default() }
    }

    /// Returns the failure of a tool.
    pub fn from_error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::from_text(text) }
    }

    /// Returns the text of all blocks.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(|block| block["text"].as_str()).collect();
        texts.join("\n")
    }
}

impl Tool {
    /// Returns a tool that calls `f`.
    ///
    /// `In` is a struct: its fields are the arguments. The result is sent by its type: a struct is structured content
    /// with a schema, a `String` is text, and a [`ToolResult`] is sent as it is. The agent reads the text of an error.
    pub fn new<In, Out, Err, Fut>(
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
        let input = schema_of::<In>(SchemaSettings::draft2020_12());
        let output = schema_of::<Out>(SchemaSettings::draft2020_12().for_serialize());
        let raw = std::any::TypeId::of::<Out>() == std::any::TypeId::of::<ToolResult>();
        let structured = !raw && output.get("type").and_then(Value::as_str) == Some("object");
        Self {
            definition: v1::ToolDefinition {
                name: name.into(),
                description: description.into(),
                input_schema_json: input.as_value().to_string(),
                output_schema_json: if structured { output.as_value().to_string() } else { String::new() },
                ..v1::ToolDefinition::default()
            },
            input: input.to_value(),
            run: Box::new(move |input, call| {
                let started = serde_json::from_slice(&input).map(|input| f(input, call));
                Box::pin(async move {
                    let out = started.map_err(|err| format!("the arguments cannot be read: {err}"))?;
                    result_of(out.await.map_err(|err| err.to_string())?)
                })
            }),
        }
    }

    /// Hides the tool from callers that do not have all these capabilities.
    pub fn requires<S: Into<String>>(mut self, capabilities: impl IntoIterator<Item = S>) -> Self {
        self.definition.required_capabilities.extend(capabilities.into_iter().map(Into::into));
        self
    }

    /// Sets how long a call may take, in whole seconds; 30 s without it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.definition.timeout_seconds = i32::try_from(timeout.as_secs().max(1)).unwrap_or(i32::MAX);
        self
    }

    /// Sets when the server puts the definition before a model: `always`, `deferred` or `hidden`.
    pub fn disclosure(mut self, when: impl Into<String>) -> Self {
        self.definition.disclosure = when.into();
        self
    }

    /// Sets hints of MCP, such as `json!({"readOnlyHint": true})`.
    pub fn annotations(mut self, hints: Value) -> Self {
        self.definition.annotations_json = hints.to_string();
        self
    }

    /// Sets the name of the tool that people see.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = title.into();
        self
    }

    /// Replaces the schema that comes from the type of the input.
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.definition.input_schema_json = schema.to_string();
        self.input = schema;
        self
    }

    /// Runs the tool. Its error and its panic are its own failure.
    pub(crate) async fn answer(&self, input: Vec<u8>, call: Call) -> ToolResult {
        let mut answer = std::pin::pin!(async move { (self.run)(input, call).await });
        let outcome = poll_fn(|cx| {
            // A handler that has panicked is not polled again.
            match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        })
        .await;
        match outcome {
            Ok(Ok(result)) => result,
            Ok(Err(text)) => ToolResult::from_error(text),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                tracing::error!(tool = self.definition.name, error = text, "a tool panicked");
                ToolResult::from_error("the tool failed in a way that its author did not expect")
            }
        }
    }
}

/// Returns the schema of a type, without what no agent needs.
fn schema_of<T: JsonSchema>(mut settings: SchemaSettings) -> Schema {
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema
}

fn result_of<Out: Serialize + 'static>(out: Out) -> Result<ToolResult, String> {
    if let Some(result) = (&out as &dyn Any).downcast_ref::<ToolResult>() {
        return Ok(result.clone());
    }
    let value = serde_json::to_value(out).map_err(|err| format!("the result cannot be written: {err}"))?;
    Ok(match value {
        Value::String(text) => ToolResult::from_text(text),
        Value::Object(_) => {
            ToolResult { structured_content: Some(value.clone()), ..ToolResult::from_text(value.to_string()) }
        }
        _ => ToolResult::from_text(value.to_string()),
    })
}
