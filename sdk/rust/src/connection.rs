use std::{
    collections::{HashMap, VecDeque},
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, Request, Status, Streaming};

use crate::{
    Call, Error, Pack, Server, ToolResult,
    server::{Client, DIAL_TIME},
    v1::{self, pack_message::Message, server_message, tool_error},
};

/// Heartbeats without any message after which the server is gone.
const SILENT_BEATS: u32 = 3;
/// Messages that wait to be sent.
const WAITING: usize = 16;

/// One stream to a server that has taken the pack.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` ends the stream.
    out: mpsc::Sender<Option<v1::PackMessage>>,
    limits: v1::Welcome,
    /// The tasks of the calls.
    tasks: TaskTracker,
    /// Told when a window is wider.
    wider: Notify,
    /// Cancelled when the server stops. It sends calls until another one has the pack.
    pub(crate) leaves: CancellationToken,
    /// Cancelled when another server has taken the pack.
    pub(crate) moved: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    draining: bool,
    calls: HashMap<u64, Outgoing>,
    /// Bytes of results that the server takes, of all calls.
    window: i64,
    reloads: VecDeque<oneshot::Sender<Result<(), Error>>>,
    /// The stream has ended.
    lost: bool,
}

/// A call under way.
#[derive(Debug)]
struct Outgoing {
    token: CancellationToken,
    window: i64,
}

/// Takes a call out of its connection when its task ends.
struct Place<'a>(&'a Connection, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().calls.remove(&self.1);
    }
}

/// Connects, and registers the pack.
pub(crate) async fn open(
    pack: &Pack,
    server: &Server,
    client: &mut Client,
    instance: &str,
    address: &str,
) -> Result<(Arc<Connection>, Streaming<v1::ServerMessage>), Status> {
    let (out, waiting) = mpsc::channel::<Option<v1::PackMessage>>(WAITING);
    let messages = ReceiverStream::new(waiting).map_while(|message| message);
    let mut request = Request::new(messages);
    server.credential.apply(request.metadata_mut())?;
    let pack_id = pack.id();
    let first =
        v1::Open { pack_id: pack_id.clone(), instance: instance.to_owned(), address: address.to_owned() };
    let lost = |_| Status::unavailable("the stream has ended");
    out.send(packed(Message::Open(first))).await.map_err(lost)?;
    let mut incoming = client.connect(request).await?.into_inner();
    let Some(server_message::Message::Challenge(challenge)) = receive(&mut incoming).await? else {
        return Err(Status::unavailable("the server sent no challenge"));
    };
    let signature = server
        .credential
        .sign(&challenge, &pack_id, address)
        .await
        .map_err(|err| Status::unauthenticated(format!("the challenge cannot be signed: {err}")))?;
    let register = v1::Register { manifest: Some(pack.manifest()), signature };
    // When the server has ended the stream, what comes next says why.
    let _ = out.send(packed(Message::Register(register))).await;
    let Some(server_message::Message::Welcome(limits)) = receive(&mut incoming).await? else {
        return Err(Status::unavailable("the server sent no welcome"));
    };
    let state = State {
        draining: false,
        calls: HashMap::new(),
        window: limits.connection_window,
        reloads: VecDeque::new(),
        lost: false,
    };
    let connection = Connection {
        out,
        limits,
        tasks: TaskTracker::new(),
        wider: Notify::new(),
        leaves: CancellationToken::new(),
        moved: CancellationToken::new(),
        state: Mutex::new(state),
    };
    Ok((Arc::new(connection), incoming))
}

fn packed(message: Message) -> Option<v1::PackMessage> {
    Some(v1::PackMessage { message: Some(message) })
}

/// Returns the next message; `None` inside for one that a newer contract knows.
async fn receive(
    incoming: &mut Streaming<v1::ServerMessage>,
) -> Result<Option<server_message::Message>, Status> {
    match incoming.message().await? {
        Some(message) => Ok(message.message),
        None => Err(Status::unavailable("the server has ended the stream")),
    }
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until the stream ends, and returns why it did. When `stop` is cancelled, or another server has the pack, it
    /// drains for the given time at most.
    pub(crate) async fn run(
        self: &Arc<Self>,
        pack: &Pack,
        mut incoming: Streaming<v1::ServerMessage>,
        stop: &CancellationToken,
        longest_drain: Duration,
    ) -> Status {
        let every = Duration::from_secs(u64::try_from(self.limits.heartbeat_seconds).unwrap_or(0).max(1));
        let mut beat = interval_at(Instant::now() + every, every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut drain: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(pending());
        let mut draining = false;
        let end = loop {
            tokio::select! {
                received = receive(&mut incoming) => {
                    heard = Instant::now();
                    let message = match received {
                        Ok(message) => message,
                        Err(status) => break status,
                    };
                    if let Some(server_message::Message::Drain(_)) = message {
                        self.leaves.cancel();
                    } else if timeout(SILENT_BEATS * every, self.handle(pack, message)).await.is_err() {
                        break Status::unavailable("the server does not read the stream");
                    }
                }
                () = &mut drain => break Status::unavailable("the server did not end the stream"),
                () = either(stop, &self.moved), if !draining => {
                    draining = true;
                    drain = Box::pin(self.clone().drain(longest_drain));
                }
                _ = beat.tick() => {
                    if heard.elapsed() > SILENT_BEATS * every {
                        break Status::unavailable(format!("the server has been silent for {:?}", heard.elapsed()));
                    }
                    // When messages wait, the server hears of the pack by them.
                    let _ = self.out.try_send(packed(Message::Heartbeat(v1::Heartbeat {})));
                }
            }
        };
        self.lose();
        end
    }

    /// Reports whether the stream has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Ends the calls and reloads of a stream that has ended.
    fn lose(&self) {
        let mut state = self.state();
        state.lost = true;
        for call in state.calls.values() {
            call.token.cancel();
        }
        for waiting in state.reloads.drain(..) {
            let _ = waiting.send(Err(Error::NotConnected));
        }
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), Error> {
        self.out.send(packed(message)).await.map_err(|_| Error::NotConnected)
    }

    /// Takes in one message of the server.
    async fn handle(self: &Arc<Self>, pack: &Pack, message: Option<server_message::Message>) {
        match message {
            Some(server_message::Message::Execute(v1::ExecuteTool { request: Some(request) })) => {
                if let Err((code, text)) = self.begin(pack, &request) {
                    self.fail(request.request_id, code, text).await;
                }
            }
            Some(server_message::Message::Cancel(cancel)) => {
                if let Some(call) = self.state().calls.get(&cancel.request_id) {
                    call.token.cancel();
                }
            }
            Some(server_message::Message::Window(window)) => self.widen(&window),
            Some(server_message::Message::ReloadResult(result)) => {
                if let Some(waiting) = self.state().reloads.pop_front() {
                    let _ = waiting.send(if result.error.is_empty() {
                        Ok(())
                    } else {
                        Err(Error::Reload(result.error))
                    });
                }
            }
            _ => {} // a heartbeat, or what a newer contract knows
        }
    }

    /// Starts the task of a call, or says why not.
    fn begin(
        self: &Arc<Self>,
        pack: &Pack,
        request: &v1::ExecuteToolRequest,
    ) -> Result<(), (tool_error::Code, String)> {
        let (id, most) = (request.request_id, pack.parallel());
        let tool = pack.find(&request.tool_name);
        let token = CancellationToken::new();
        let call = Call::new(self, request, token.child_token());
        {
            let mut state = self.state();
            if state.draining {
                return Err((tool_error::Code::Draining, "the pack stops".to_owned()));
            }
            // The server does not wait for calls that it has cancelled.
            if state.calls.len() >= 2 * most {
                return Err((
                    tool_error::Code::Busy,
                    format!("{} calls run, and the pack takes {most}", state.calls.len()),
                ));
            }
            if tool.is_ok() {
                let outgoing = Outgoing { token: token.clone(), window: self.limits.call_window };
                state.calls.insert(id, outgoing);
            }
        }
        let tool = tool.map_err(|err| (tool_error::Code::UnknownTool, err.to_string()))?;
        let input = if request.input_json.is_empty() { b"{}".to_vec() } else { request.input_json.clone() };
        let connection = self.clone();
        self.tasks.spawn(async move {
            let _place = Place(&connection, id);
            let answered = async {
                let (deadline, ended) = (call.deadline, call.token.clone());
                let result = tokio::select! {
                    result = tool.answer(input, call) => result,
                    () = passed(deadline) => ToolResult::from_error("the time of the call has passed"),
                };
                ended.cancel();
                connection.reply(id, &result).await;
            };
            tokio::select! {
                biased;
                () = token.cancelled() => {} // the server does not wait for an answer
                () = answered => {}
            }
        });
        Ok(())
    }

    async fn fail(&self, id: u64, code: tool_error::Code, message: String) {
        let error = v1::ToolError { code: code.into(), message };
        let result = v1::ToolResult { request_id: id, part: Vec::new(), last: true, error: Some(error) };
        // The reader sees the end of a lost stream.
        let _ = self.send(Message::Result(result)).await;
    }

    /// Sends a result in parts, as far as the windows let it.
    async fn reply(&self, id: u64, result: &ToolResult) {
        let most = u64::try_from(self.limits.max_result_bytes).unwrap_or(0);
        let raw = match serde_json::to_vec(result) {
            Ok(raw) if raw.len() as u64 <= most => raw,
            Ok(raw) => {
                let text = format!("the result has {} bytes, and the server takes at most {most}", raw.len());
                serde_json::to_vec(&ToolResult::from_error(text)).unwrap_or_default() // a text
            }
            Err(err) => serde_json::to_vec(&ToolResult::from_error(err.to_string())).unwrap_or_default(),
        };
        let mut rest = raw.as_slice();
        while !rest.is_empty() {
            self.wait_for_window(id).await;
            // The bytes are taken with the place in the queue, so that none are lost when the call is dropped here.
            let Ok(place) = self.out.reserve().await else { return };
            let n = self.take_window(id, rest.len());
            if n == 0 {
                continue; // another call was faster
            }
            let (part, after) = rest.split_at(n);
            rest = after;
            if rest.is_empty() {
                self.state().calls.remove(&id); // the server's next call may come at once
            }
            let message =
                v1::ToolResult { request_id: id, part: part.to_vec(), last: rest.is_empty(), error: None };
            place.send(packed(Message::Result(message)));
        }
    }

    /// Waits until the server takes a byte of a call.
    async fn wait_for_window(&self, id: u64) {
        loop {
            let mut wider = std::pin::pin!(self.wider.notified());
            wider.as_mut().enable();
            if self.allowed(&self.state(), id) > 0 {
                return;
            }
            wider.await;
        }
    }

    /// Returns the bytes that the windows of a call and of the stream allow.
    fn allowed(&self, state: &State, id: u64) -> i64 {
        state.calls.get(&id).map_or(0, |call| call.window.min(state.window))
    }

    /// Takes up to `most` bytes from the windows.
    fn take_window(&self, id: u64, most: usize) -> usize {
        let mut state = self.state();
        // Without a limit the windows alone bound a part.
        let part = Some(i64::from(self.limits.max_part_bytes)).filter(|n| *n > 0).unwrap_or(i64::MAX);
        let n = self.allowed(&state, id).min(part).min(i64::try_from(most).unwrap_or(i64::MAX)).max(0);
        state.window -= n;
        if let Some(call) = state.calls.get_mut(&id) {
            call.window -= n;
        }
        usize::try_from(n).unwrap_or(0)
    }

    fn widen(&self, window: &v1::Window) {
        let mut state = self.state();
        if window.request_id == 0 {
            state.window = state.window.saturating_add(window.bytes);
        } else if let Some(call) = state.calls.get_mut(&window.request_id) {
            call.window = call.window.saturating_add(window.bytes);
        }
        drop(state);
        self.wider.notify_waiters();
    }

    /// Sends the manifest, and waits for the answer.
    pub(crate) async fn reload(&self, pack: &Pack) -> Result<(), Error> {
        let (tell, answer) = oneshot::channel();
        let place = self.out.reserve().await.map_err(|_| Error::NotConnected)?;
        let manifest = Some(pack.manifest());
        {
            // Answers come in the order of the messages.
            let mut state = self.state();
            if state.lost {
                return Err(Error::NotConnected);
            }
            state.reloads.push_back(tell);
            place.send(packed(Message::Reload(v1::Reload { manifest })));
        }
        answer.await.unwrap_or(Err(Error::NotConnected))
    }

    /// Takes no new calls, waits for those that run, and ends the stream. It then leaves the server some time to end its side.
    async fn drain(self: Arc<Self>, longest: Duration) {
        self.state().draining = true;
        let ended = async {
            let _ = self.send(Message::Drain(v1::Drain {})).await;
            self.tasks.close();
            self.tasks.wait().await;
        };
        let _ = timeout(longest, ended).await;
        let _ = timeout(DIAL_TIME, self.out.send(None)).await;
        sleep(DIAL_TIME).await;
    }
}

/// Waits until one of two tokens is cancelled.
async fn either(a: &CancellationToken, b: &CancellationToken) {
    tokio::select! {
        () = a.cancelled() => {}
        () = b.cancelled() => {}
    }
}

/// Waits until a time, or for ever.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Reports whether another try has no use. A server that took the pack before may take it again.
pub(crate) fn refuses(status: &Status, welcomed: bool) -> bool {
    match status.code() {
        Code::InvalidArgument | Code::Unimplemented => true,
        Code::Unauthenticated | Code::PermissionDenied => !welcomed,
        _ => false,
    }
}
