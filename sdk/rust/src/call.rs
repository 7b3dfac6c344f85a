use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{connection::Connection, v1};

/// For whom a call is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The tenant of the user.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The thread of the conversation.
    pub thread: String,
}

/// One call of a tool, as its handler sees it.
///
/// When the caller gives up, or the deadline passes, the handler's future is dropped. What it has started elsewhere,
/// such as a task or a thread, learns of it by [`Call::cancelled`].
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub(crate) caller: Caller,
    pub(crate) deadline: Option<Instant>,
    pub(crate) token: CancellationToken,
    pub(crate) origin: Option<(Arc<Connection>, u64)>,
}

impl Call {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        r: &v1::ExecuteToolRequest,
        token: CancellationToken,
    ) -> Self {
        let context = r.context.clone().unwrap_or_default();
        Self {
            caller: Caller { tenant: context.tenant, user: context.user, thread: context.thread },
            deadline: deadline(r.timeout_ms),
            token,
            origin: Some((connection.clone(), r.request_id)),
        }
    }

    /// Says for whom the call is made.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Tells the caller how far the call is. `total` is 0 when it is not known.
    pub async fn progress(&self, done: f64, total: f64, message: impl Into<String>) {
        let Some((connection, id)) = &self.origin else { return };
        let message = message.into();
        let progress = v1::Progress { request_id: *id, progress: done, total, message };
        // The connection's reader sees the end of a lost stream.
        let _ = connection.send(v1::pack_message::Message::Progress(progress)).await;
    }

    /// Returns when the server stops to wait for the answer; `None`: it has set no time.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.deadline.map(Instant::into_std)
    }

    /// Waits until the call is cancelled, its deadline has passed, or it has ended.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Reports whether the call was cancelled, its deadline has passed, or it has ended.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// Returns the time that is so many milliseconds away; `None` for none, or for one that no clock reaches.
fn deadline(timeout_ms: i64) -> Option<Instant> {
    let ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0)?;
    Instant::now().checked_add(Duration::from_millis(ms))
}
