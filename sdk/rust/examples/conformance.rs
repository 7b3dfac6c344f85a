//! The program that the suite of sdk/packs/conformance runs. Its README says what it does.

use std::{
    env, fs,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use skerry_packs::{Call, Credential, Error, NoInput, Pack, Server, Tool};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

#[derive(Serialize, JsonSchema)]
struct Who {
    tenant: String,
    user: String,
    thread: String,
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    n: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    name: String,
    ms: u64,
}

#[derive(Serialize, JsonSchema)]
struct Noted {
    names: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Large {
    bytes: usize,
}

type Names = Arc<Mutex<Vec<String>>>;

/// Notes a name when the call is dropped before its end.
struct Note {
    name: Option<String>,
    names: Names,
}

impl Note {
    /// Forgets the name, because the call has ended.
    fn forget(mut self) {
        self.name = None;
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.names.lock().unwrap().push(name);
        }
    }
}

type Done<T> = Result<T, String>;

fn pack() -> Pack {
    let pack = Pack::new("conformance", "1.0.0")
        .description("What a provider promises")
        .max_parallel(4)
        .tool("echo", "Returns a text", async |input: Text, _: Call| Done::Ok(input.text))
        .tool("add", "Adds two numbers", async |input: Add, _: Call| {
            input.a.checked_add(input.b).map(|sum| Sum { sum }).ok_or("the sum is too large")
        })
        .tool("fail", "Fails with a text", async |input: Text, _: Call| Done::<String>::Err(input.text))
        .tool("crash", "Panics", async |_: NoInput, _: Call| -> Done<String> { panic!("as it was asked to") })
        .tool("who", "Returns the caller", async |_: NoInput, call: Call| {
            let caller = call.caller().clone();
            Done::Ok(Who { tenant: caller.tenant, user: caller.user, thread: caller.thread })
        })
        .tool("steps", "Reports progress", async |input: Steps, call: Call| {
            for i in 1..=input.n {
                call.progress(f64::from(i), f64::from(input.n), format!("step {i}")).await;
            }
            Done::Ok("done".to_owned())
        })
        .tool("large", "Returns a long text", async |input: Large, _: Call| Done::Ok("x".repeat(input.bytes)))
        .with(
            Tool::new("options", "Has options", async |_: NoInput, _: Call| Done::Ok("options".to_owned()))
                .title("Has options")
                .timeout(Duration::from_secs(2))
                .requires(["crm"])
                .disclosure("hidden")
                .annotations(json!({"readOnlyHint": true})),
        );
    with_reloads(with_waits(pack))
}

/// Adds the tools that say which calls were cancelled.
fn with_waits(pack: Pack) -> Pack {
    let names = Names::default();
    let noted = names.clone();
    pack.tool("wait", "Waits", move |input: Wait, _: Call| {
        let note = Note { name: Some(input.name), names: names.clone() };
        async move {
            tokio::time::sleep(Duration::from_millis(input.ms)).await;
            note.forget();
            Done::Ok("waited".to_owned())
        }
    })
    .tool(
        "noted",
        "Returns the names of the calls of wait that did not end",
        move |_: NoInput, _: Call| {
            let names = noted.lock().unwrap().clone();
            async { Done::Ok(Noted { names }) }
        },
    )
}

/// Adds the tools that change the pack.
fn with_reloads(pack: Pack) -> Pack {
    let (grows, spoils) = (pack.clone(), pack.clone());
    pack.tool("grow", "Adds a tool", move |_: NoInput, _: Call| {
        let pack = grows.clone();
        async move {
            pack.add(Tool::new("grown", "Was added", async |_: NoInput, _: Call| {
                Done::Ok("grown".to_owned())
            }))?;
            pack.reload().await?;
            Ok::<_, Error>("reloaded".to_owned())
        }
    })
    .tool("spoil", "Adds a tool that the server refuses", move |_: NoInput, _: Call| {
        let pack = spoils.clone();
        async move {
            let schema = json!({"type": "object", "$ref": "https://example.com/x"});
            let broken =
                Tool::new("broken", "Is broken", async |_: NoInput, _: Call| Done::Ok(String::new()));
            pack.add(broken.input_schema(schema))?;
            let refused = pack.reload().await;
            pack.remove("broken");
            match refused {
                Err(Error::Reload(text)) => Ok(text),
                Err(err) => Err(err),
                Ok(()) => Ok("the server has taken it".to_owned()),
            }
        }
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let mut server = Server::new(set("SKERRY_SERVER").unwrap_or_default());
    if let Some(key) = set("SKERRY_KEY") {
        server = server.credential(Credential::bearer_key(key));
    }
    if let Some(file) = set("SKERRY_SSH_KEY") {
        server = server.credential(Credential::ssh_key_file(file));
    }
    let read = |name| set(name).map(|file| fs::read(&file).unwrap_or_else(|err| panic!("{file}: {err}")));
    if let Some(authority) = read("SKERRY_CA") {
        server = server.ca_certificate(authority);
    }
    if let (Some(certificate), Some(key)) = (read("SKERRY_CERTIFICATE"), read("SKERRY_CERTIFICATE_KEY")) {
        server = server.client_certificate(certificate, key);
    }
    let mut terminated = signal(SignalKind::terminate()).expect("the system has signals");
    let shutdown = async {
        terminated.recv().await;
    };
    match pack().serve(server, shutdown).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}
