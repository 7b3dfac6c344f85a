//! The protocol of SSH agents, as far as a pack needs it.

use std::{io, path::Path};

/// Signs data with the key of a fingerprint. Returns the key and the signature in the format of SSH.
#[cfg(unix)]
pub(crate) async fn sign(socket: &Path, fingerprint: &str, data: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let wrong = |err: io::Error| io::Error::other(format!("the SSH agent: {err}"));
    let mut stream = tokio::net::UnixStream::connect(socket).await.map_err(wrong)?;
    let listed = protocol::ask(&mut stream, protocol::LIST, &[], protocol::LISTED).await.map_err(wrong)?;
    let key = protocol::find(&listed, fingerprint).map_err(wrong)?;
    let body = protocol::to_sign(&key, data);
    let answer = protocol::ask(&mut stream, protocol::SIGN, &body, protocol::SIGNED).await.map_err(wrong)?;
    let signature = protocol::field(&mut answer.as_slice()).map_err(wrong)?.to_vec();
    Ok((key, signature))
}

#[cfg(not(unix))]
pub(crate) async fn sign(_: &Path, _: &str, _: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    Err(io::Error::other("the SSH agent: there are no Unix sockets on this system"))
}

#[cfg(unix)]
mod protocol {
    use std::io;

    use ssh_key::{Algorithm, HashAlg, PublicKey};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixStream,
    };

    use crate::credential::{put, take};

    pub(super) const LIST: u8 = 11;
    pub(super) const LISTED: u8 = 12;
    pub(super) const SIGN: u8 = 13;
    pub(super) const SIGNED: u8 = 14;
    /// The flag by which an RSA key signs with SHA-512.
    const RSA_SHA2_512: u32 = 4;
    /// Bytes of an answer, as OpenSSH bounds them.
    const MAX_ANSWER: usize = 256 << 10;

    /// Sends a message, and returns the answer without its kind.
    pub(super) async fn ask(
        stream: &mut UnixStream,
        kind: u8,
        body: &[u8],
        wanted: u8,
    ) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        put(&mut message, &[&[kind], body].concat());
        stream.write_all(&message).await?;
        let length = stream.read_u32().await? as usize;
        if length == 0 || length > MAX_ANSWER {
            return Err(io::Error::other(format!(
                "an answer of {length} bytes; at most {MAX_ANSWER} are taken"
            )));
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        if answer.remove(0) != wanted {
            return Err(io::Error::other("it refuses"));
        }
        Ok(answer)
    }

    /// Returns the key of a fingerprint among those that the agent has.
    pub(super) fn find(listed: &[u8], fingerprint: &str) -> io::Result<Vec<u8>> {
        let mut rest = listed;
        for _ in 0..number(&mut rest)? {
            let (key, _comment) = (field(&mut rest)?, field(&mut rest)?);
            // A certificate is no public key for this parser, and is passed over.
            if PublicKey::from_bytes(key)
                .is_ok_and(|k| k.fingerprint(HashAlg::Sha256).to_string() == fingerprint)
            {
                return Ok(key.to_vec());
            }
        }
        Err(io::Error::other(format!("it has no key {fingerprint}")))
    }

    pub(super) fn to_sign(key: &[u8], data: &[u8]) -> Vec<u8> {
        let rsa = PublicKey::from_bytes(key).is_ok_and(|k| matches!(k.algorithm(), Algorithm::Rsa { .. }));
        let mut body = Vec::new();
        put(&mut body, key);
        put(&mut body, data);
        body.extend_from_slice(&if rsa { RSA_SHA2_512 } else { 0 }.to_be_bytes());
        body
    }

    fn number(rest: &mut &[u8]) -> io::Result<u32> {
        let (bytes, after) = rest.split_first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
        *rest = after;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Returns the next string of SSH.
    pub(super) fn field<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
        take(rest).ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn answers_that_end_early_are_errors() {
            for answer in [&[][..], &[0, 0, 0, 1], &[0, 0, 0, 1, 0, 0, 0, 9, 1], &[255, 255, 255, 255]] {
                find(answer, "SHA256:x").unwrap_err();
            }
            assert_eq!(find(&[0; 4], "SHA256:x").unwrap_err().to_string(), "it has no key SHA256:x");
        }
    }
}
