//! A CRM as a pack: half of the story of docs/packs.md, whose other half is
//! sdk/python/examples/drive_to_crm/handlers.py.
//!
//!     SKERRY_SERVER=http://127.0.0.1:8080 cargo run --example crm

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skerry_packs::{Call, Credential, Error, Pack, Server};
use tokio::signal::unix::{SignalKind, signal};

type Fields = BTreeMap<String, String>;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Get {
    /// Which record, such as OPP-001.
    record_id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Update {
    /// Which record, such as OPP-001.
    record_id: String,
    /// The new values, by the names of the fields.
    fields: Fields,
}

#[derive(Serialize, JsonSchema)]
struct Record {
    fields: Fields,
}

#[derive(Serialize, JsonSchema)]
struct Updated {
    bytes: usize,
}

fn pack() -> Pack {
    let opportunity = Fields::from([("Name".to_owned(), "Acme renewal".to_owned())]);
    let records = Arc::new(Mutex::new(BTreeMap::from([("OPP-001".to_owned(), opportunity)])));
    let known = records.clone();
    Pack::new("salesforce", "1.0.0")
        .description("Opportunities of the sales team")
        .tool("get_record", "Read a record", move |input: Get, _: Call| {
            let found = known.lock().unwrap().get(&input.record_id).cloned();
            async move { found.map(|fields| Record { fields }).ok_or(format!("there is no {}", input.record_id)) }
        })
        .tool("update_record", "Update fields of a record", move |input: Update, _: Call| {
            let bytes = input.fields.values().map(String::len).sum();
            let mut records = records.lock().unwrap();
            let found = records.get_mut(&input.record_id).map(|fields| fields.extend(input.fields));
            let done = found.map(|()| Updated { bytes }).ok_or(format!("there is no {}", input.record_id));
            async move { done }
        })
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut server = Server::new(env::var("SKERRY_SERVER").unwrap_or("http://127.0.0.1:8080".to_owned()));
    if let Ok(key) = env::var("SKERRY_KEY") {
        server = server.credential(Credential::bearer_key(key));
    }
    let mut terminated = signal(SignalKind::terminate()).expect("the system has signals");
    let shutdown = async {
        terminated.recv().await;
    };
    pack().serve(server.on_connected(|| println!("connected")), shutdown).await
}
