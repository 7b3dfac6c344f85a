use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use ssh_key::rand_core::{OsRng, RngCore};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    codegen::http::Uri,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    Credential, Error, Pack,
    connection::{self, Connection, refuses},
    v1,
};

pub(crate) type Client = v1::pack_service_client::PackServiceClient<Channel>;

pub(crate) const DIAL_TIME: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause while the server that stops still has the pack.
const LONGEST_MOVE: Duration = Duration::from_secs(1);
/// A pause is longer by up to one part of so many.
const PAUSE_SPREAD: u32 = 4;
/// Bytes of a message of the server.
const MAX_MESSAGE: usize = 8 << 20;
const ID_BYTES: usize = 12;

/// Where a pack connects to, and as whom.
#[derive(Clone)]
pub struct Server {
    url: String,
    pub(crate) credential: Credential,
    pub(crate) drain: Duration,
    authority: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    connected: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Returns the server whose API has this address. Without a credential only a server without keys takes the pack.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credential: Credential::none(),
            drain: Duration::from_secs(30),
            authority: None,
            identity: None,
            connected: Arc::new(|| {}),
        }
    }

    /// Sets what proves who the pack is.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Sets how long calls may go on after the shutdown: 30 s without it.
    pub fn drain(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Sets the only authorities, as PEM, whose certificates of `https` servers count. Without it those of the system do.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Sets the certificate of the TLS client and its key, both as PEM.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets a function that is called each time the server has taken the pack.
    pub fn on_connected(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.connected = Arc::new(f);
        self
    }

    /// Returns the address as a URI, and its host and port.
    fn address(&self) -> Result<(Uri, String), Error> {
        let wrong = || Error::Server(format!("{:?} is not the URL of a server", self.url));
        let uri: Uri = self.url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let address = uri.authority().map(|a| a.as_str().to_owned()).filter(|a| !a.contains('@'));
        match (uri.scheme_str(), address) {
            (Some("http" | "https"), Some(address)) => Ok((uri, address)),
            _ => Err(wrong()),
        }
    }

    /// Returns a client that dials with its first call.
    fn client(&self, uri: &Uri) -> Result<Client, Error> {
        let wrong = |err: tonic::transport::Error| Error::Server(format!("TLS: {}", causes(&err)));
        let mut endpoint = Endpoint::from(uri.clone()).connect_timeout(DIAL_TIME);
        if uri.scheme_str() == Some("https") {
            let mut tls = ClientTlsConfig::new();
            tls = match &self.authority {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls).map_err(wrong)?;
        }
        let client = Client::with_origin(endpoint.connect_lazy(), uri.clone());
        Ok(client.max_decoding_message_size(MAX_MESSAGE))
    }
}

/// Offers a pack on a server until `shutdown` is done.
pub(crate) async fn serve<F: Future<Output = ()>>(
    pack: &Pack,
    server: Server,
    shutdown: Pin<&mut F>,
) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let mut kept = std::pin::pin!(keep(pack, Arc::new(server), &stop));
    tokio::select! {
        biased;
        () = shutdown => stop.cancel(),
        ended = &mut kept => return ended,
    }
    kept.await
}

/// Keeps a pack connected until `stop` is cancelled, and waits for the end of its connections.
async fn keep(pack: &Pack, server: Arc<Server>, stop: &CancellationToken) -> Result<(), Error> {
    let mut runs = JoinSet::new(); // connections to servers that stop go on for a while
    let ended = connect(pack, &server, stop, &mut runs).await;
    while runs.join_next().await.is_some() {}
    ended
}

/// Connects, and connects again when a connection is lost or its server stops.
async fn connect(
    pack: &Pack,
    server: &Arc<Server>,
    stop: &CancellationToken,
    runs: &mut JoinSet<()>,
) -> Result<(), Error> {
    let (uri, address) = server.address()?;
    let instance = random_id();
    let (mut welcomed, mut tries) = (false, 0u32);
    // To a server that stops, until another one takes the pack.
    let mut old: Option<Arc<Connection>> = None;
    loop {
        while runs.try_join_next().is_some() {}
        let mut client = server.client(&uri)?;
        let opened = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            opened = timeout(DIAL_TIME, connection::open(pack, server, &mut client, &instance, &address)) => opened,
        };
        let lost = match opened {
            Err(_) => Status::unavailable(format!("the server has not taken the pack within {DIAL_TIME:?}")),
            Ok(Err(status)) => status,
            Ok(Ok((connection, incoming))) => {
                (welcomed, tries) = (true, 0);
                pack.attach(&connection);
                if let Some(old) = old.take() {
                    old.moved.cancel();
                }
                (server.connected)();
                tracing::info!(pack = pack.id(), server = server.url, "the pack is connected");
                let (tell, told) = oneshot::channel();
                let (pack, server, stop, running) =
                    (pack.clone(), server.clone(), stop.clone(), connection.clone());
                runs.spawn(async move {
                    let _client = client; // the connection below the stream
                    let why = running.run(&pack, incoming, &stop, server.drain).await;
                    pack.detach(&running);
                    let _ = tell.send(why); // nobody waits for the end of a former connection
                });
                tokio::select! {
                    biased;
                    ended = told => ended.unwrap_or_else(|_| Status::unavailable("the connection has failed")),
                    () = connection.leaves.cancelled() => {
                        old = Some(connection);
                        continue;
                    }
                }
            }
        };
        if stop.is_cancelled() {
            return Ok(());
        }
        if refuses(&lost, welcomed) {
            return Err(Error::Refused {
                code: format!("{:?}", lost.code()),
                text: lost.message().to_owned(),
            });
        }
        let moving = old.as_ref().is_some_and(|old| !old.is_lost());
        let pause = pause(tries, if moving { LONGEST_MOVE } else { LONGEST_PAUSE });
        tries += 1;
        tracing::warn!(pack = pack.id(), again_in = ?pause, error = causes(&lost), "the pack is not connected");
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep(pause) => {}
        }
    }
}

/// Returns how long the pack waits after so many failures, a little of it at random.
fn pause(tries: u32, longest: Duration) -> Duration {
    let pause = (FIRST_PAUSE * (1 << tries.min(10))).min(longest);
    pause + (pause / PAUSE_SPREAD).mul_f64(f64::from(OsRng.next_u32()) / f64::from(u32::MAX))
}

fn random_id() -> String {
    let mut id = [0; ID_BYTES];
    OsRng.fill_bytes(&mut id);
    hex(&id)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns an error with what has caused it.
fn causes(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        text = format!("{text}: {err}");
        cause = err.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_ten_seconds() {
        for (tries, shortest) in [(0, 100), (1, 200), (5, 3200), (7, 10_000), (u32::MAX, 10_000)] {
            let (pause, shortest) = (pause(tries, LONGEST_PAUSE), Duration::from_millis(shortest));
            assert!(pause >= shortest && pause <= shortest * 5 / 4, "{tries}: {pause:?}");
        }
    }

    #[test]
    fn the_address_is_that_of_the_url() {
        let address = |url: &str| Server::new(url).address().map(|(_, address)| address);
        assert_eq!(address("http://skerry.example:8080/").unwrap(), "skerry.example:8080");
        assert_eq!(address("https://skerry.example/prefix").unwrap(), "skerry.example");
        for wrong in
            ["", "skerry.example:8080", "ftp://skerry.example", "http://key@skerry.example", "http://"]
        {
            let err = address(wrong).unwrap_err().to_string();
            assert!(err.contains("is not the URL of a server"), "{wrong}: {err}");
        }
    }
}
