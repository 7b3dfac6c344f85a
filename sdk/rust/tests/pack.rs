//! A pack without a server.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skerry_packs::{Call, Error, NoInput, Pack, Tool, ToolResult};

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// Whom to look for.
    name: String,
    #[serde(default)]
    limit: u32,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    names: Vec<String>,
}

async fn find(query: Query, _: Call) -> Result<Found, String> {
    match query.name.as_str() {
        "panic" => panic!("as the test wants"),
        "" => Err("whom?".to_owned()),
        _ => Ok(Found { names: vec![query.name; query.limit.max(1) as usize] }),
    }
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_manifest_has_schemas_and_options() {
    let pack = Pack::new("crm", "1").description("Leads").max_parallel(3).with(
        Tool::new("find", "Finds", find)
            .requires(["crm", "web"])
            .timeout(Duration::from_millis(90_900))
            .disclosure("always")
            .annotations(json!({"readOnlyHint": true}))
            .title("Find"),
    );
    let manifest = pack.manifest();
    assert_eq!((manifest.pack_id.as_str(), manifest.version.as_str()), ("crm", "1"));
    assert_eq!((manifest.description.as_str(), manifest.max_parallel_calls), ("Leads", 3));
    let tool = &manifest.tools[0];
    let input = schema(&tool.input_schema_json);
    assert_eq!((&input["type"], &input["required"]), (&json!("object"), &json!(["name"])));
    assert_eq!(input["properties"]["name"], json!({"type": "string", "description": "Whom to look for."}));
    let output = schema(&tool.output_schema_json);
    assert_eq!(output["required"], json!(["names"]));
    assert_eq!(tool.required_capabilities, ["crm", "web"]);
    assert_eq!((tool.timeout_seconds, tool.disclosure.as_str(), tool.title.as_str()), (90, "always", "Find"));
    assert_eq!(tool.annotations_json, r#"{"readOnlyHint":true}"#);
}

#[test]
fn only_structs_promise_a_structure() {
    let pack = Pack::new("crm", "1")
        .tool("text", "", async |_: NoInput, _: Call| Ok::<_, String>(String::new()))
        .tool("list", "", async |_: NoInput, _: Call| Ok::<_, String>(vec![1]))
        .tool("maybe", "", async |_: NoInput, _: Call| Ok::<_, String>(None::<Found>))
        .tool("raw", "", async |_: NoInput, _: Call| Ok::<_, String>(ToolResult::from_text("")));
    for tool in pack.manifest().tools {
        assert_eq!(tool.output_schema_json, "", "{}", tool.name);
        assert_eq!(schema(&tool.input_schema_json)["type"], "object", "{}", tool.name);
    }
}

#[tokio::test]
async fn a_call_returns_what_the_tool_does() {
    let pack = Pack::new("crm", "1").tool("find", "Finds", find);
    let found = pack.call("find", json!({"name": "Ada", "limit": 2})).await.unwrap();
    assert_eq!((found.text().as_str(), found.is_error), (r#"{"names":["Ada","Ada"]}"#, false));
    assert_eq!(found.structured_content, Some(json!({"names": ["Ada", "Ada"]})));

    let failed = pack.call("find", json!({"name": ""})).await.unwrap();
    assert_eq!(failed, ToolResult::from_error("whom?"));
    assert_eq!(
        serde_json::to_value(failed).unwrap(),
        json!({"content": [{"type": "text", "text": "whom?"}], "isError": true})
    );

    let panicked = pack.call("find", json!({"name": "panic"})).await.unwrap();
    assert!(panicked.is_error && !panicked.text().contains("as the test wants"), "{panicked:?}");
}

#[tokio::test]
async fn raw_results_are_sent_as_they_are() {
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let result = ToolResult { content: vec![image], structured_content: Some(json!([1])), is_error: true };
    let sent = result.clone();
    let pack = Pack::new("crm", "1").tool("raw", "", move |_: NoInput, _: Call| {
        let sent = sent.clone();
        async { Ok::<_, String>(sent) }
    });
    assert_eq!(pack.call("raw", json!({})).await.unwrap(), result);
}

#[tokio::test]
async fn arguments_have_to_fit_the_schema() {
    let pack = Pack::new("crm", "1").tool("find", "Finds", find);
    for wrong in [json!({}), json!({"name": 5}), json!("Ada"), json!({"name": "Ada", "limit": -1})] {
        let err = pack.call("find", &wrong).await.unwrap_err();
        assert!(matches!(err, Error::Input(_)), "{wrong}: {err}");
    }
    assert!(matches!(pack.call("lose", json!({})).await, Err(Error::NoSuchTool(_))));
}

#[tokio::test]
async fn tools_come_and_go() {
    let pack = Pack::new("crm", "1").tool("find", "Finds", find);
    assert!(matches!(pack.add(Tool::new("find", "", find)), Err(Error::DuplicateTool(_))));
    pack.remove("find");
    assert!(matches!(pack.call("find", json!({"name": "Ada"})).await, Err(Error::NoSuchTool(_))));
    pack.add(Tool::new("find", "", find)).unwrap();
    assert!(matches!(pack.reload().await, Err(Error::NotConnected)));
}
