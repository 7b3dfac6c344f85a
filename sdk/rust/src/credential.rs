use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use rsa::signature::{SignatureEncoding, Signer};
use ssh_key::{
    HashAlg, Mpint, PrivateKey, Signature, SshSig,
    private::{KeypairData, RsaKeypair},
};
use tonic::{Status, metadata::MetadataMap};

use crate::{agent, server::hex, v1};

/// The namespace of the signatures of packs. A server that asks for another one is none of Skerry.
const NAMESPACE: &str = "skerry-pack@v1";

/// What the name of a type of key has behind it in a certificate.
const CERTIFIED: &[u8] = b"-cert-v01@openssh.com";

/// Proves to a server who a pack is.
#[derive(Clone)]
pub struct Credential(Kind);

#[derive(Clone)]
enum Kind {
    None,
    BearerKey(String),
    SshKeyFile(PathBuf),
    SshAgent { socket: PathBuf, fingerprint: String },
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::None => f.write_str("none"),
            Kind::BearerKey(_) => f.write_str("a bearer key"), // which is a secret
            Kind::SshKeyFile(file) => write!(f, "the SSH key in {}", file.display()),
            Kind::SshAgent { fingerprint, .. } => write!(f, "the SSH key {fingerprint} of an agent"),
        }
    }
}

impl Credential {
    pub(crate) fn none() -> Self {
        Self(Kind::None)
    }

    /// Returns a key of the server with the role `pack`.
    pub fn bearer_key(secret: impl Into<String>) -> Self {
        Self(Kind::BearerKey(secret.into()))
    }

    /// Returns a private key in a file of OpenSSH's format that has no passphrase: Ed25519, ECDSA or RSA. A certificate
    /// beside it, in `FILE-cert.pub`, is sent along. The files are read for each connection.
    pub fn ssh_key_file(file: impl Into<PathBuf>) -> Self {
        Self(Kind::SshKeyFile(file.into()))
    }

    /// Returns a key in an agent that listens on a Unix socket, which `SSH_AUTH_SOCK` often names. The fingerprint is
    /// the key's, as `ssh-add -l` prints it.
    pub fn ssh_agent(socket: impl Into<PathBuf>, fingerprint: impl Into<String>) -> Self {
        Self(Kind::SshAgent { socket: socket.into(), fingerprint: fingerprint.into() })
    }

    /// Sets the headers of a request.
    pub(crate) fn apply(&self, headers: &mut MetadataMap) -> Result<(), Status> {
        if let Kind::BearerKey(secret) = &self.0 {
            // The error does not have the key.
            let value = format!("Bearer {secret}")
                .parse()
                .map_err(|_| Status::unauthenticated("the bearer key is not one line of ASCII"))?;
            headers.insert("authorization", value);
        }
        Ok(())
    }

    /// Returns the signature of a challenge, or nothing when the credential is not an SSH key.
    pub(crate) async fn sign(
        &self,
        challenge: &v1::Challenge,
        pack: &str,
        address: &str,
    ) -> io::Result<Vec<u8>> {
        if !matches!(self.0, Kind::SshKeyFile(_) | Kind::SshAgent { .. }) {
            return Ok(Vec::new());
        }
        if challenge.namespace != NAMESPACE || challenge.server_id.contains(['\r', '\n']) {
            let asked: String = challenge.namespace.chars().take(60).collect();
            return Err(io::Error::other(format!(
                "the server asks for a signature of the namespace {asked:?}"
            )));
        }
        let text = format!(
            "skerry-pack-v1\n{}\n{}\n{}\n{pack}\n{address}\n",
            challenge.server_id,
            hex(&challenge.nonce),
            challenge.expires_at
        );
        let data =
            SshSig::signed_data(NAMESPACE, HashAlg::Sha512, text.as_bytes()).map_err(io::Error::other)?;
        let (key, signature) = match &self.0 {
            Kind::SshAgent { socket, fingerprint } => agent::sign(socket, fingerprint, &data).await?,
            Kind::SshKeyFile(file) => sign_with_file(file, &data)?,
            _ => return Ok(Vec::new()),
        };
        Ok(sshsig(&key, &signature))
    }
}

/// Returns the key, or its certificate, in the format of SSH, and the signature of data.
fn sign_with_file(file: &Path, data: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let wrong = |err: &dyn fmt::Display| io::Error::other(format!("the key in {}: {err}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|err| wrong(&err))?;
    let key = unarmored(&text).ok_or_else(|| wrong(&"it is not in OpenSSH's format"))?;
    let key = widened(&key).unwrap_or(key);
    let key = PrivateKey::from_bytes(&key).map_err(|err| wrong(&err))?;
    if key.is_encrypted() {
        return Err(wrong(&"it has a passphrase; use an SSH agent"));
    }
    let signature = match key.key_data() {
        KeypairData::Rsa(key) => sign_with_rsa(key, data).map_err(|err| wrong(&err))?,
        _ => {
            let signature: Signature = key.try_sign(data).map_err(|err| wrong(&err))?;
            Vec::try_from(signature).map_err(|err| wrong(&err))?
        }
    };
    let public = key.public_key().to_bytes().map_err(|err| wrong(&err))?;
    Ok((read_certificate(file, &public)?.unwrap_or(public), signature))
}

/// Returns what a file of OpenSSH's format has between its first line and its last one. The library for keys takes lines
/// of 70 characters only, and other programs than OpenSSH write others.
fn unarmored(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let body = body.strip_suffix("-----END OPENSSH PRIVATE KEY-----")?;
    STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
}

/// Returns a key for ECDSA whose private number has as many bytes as its curve; `None`: the key is none for ECDSA, or the
/// library has to say what is wrong with it. OpenSSH writes a number without the zeros before it, as one P-521 key in four
/// has them, and the library for keys refuses a shorter one.
fn widened(key: &[u8]) -> Option<Vec<u8>> {
    const MAGIC: &[u8] = b"openssh-key-v1\0";
    let mut rest = key.strip_prefix(MAGIC)?;
    for _cipher_kdf_options in 0..3 {
        take(&mut rest)?;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    take(&mut rest).filter(|_| *count == [0, 0, 0, 1])?; // the public key
    let before = &key[..key.len() - rest.len()];
    let block = take(&mut rest).filter(|_| rest.is_empty())?;
    let (_, mut fields) = block.split_first_chunk::<8>()?; // a number twice
    let curve = take(&mut fields)?.strip_prefix(b"ecdsa-sha2-")?;
    let size = match curve {
        b"nistp256" => 32,
        b"nistp384" => 48,
        b"nistp521" => 66,
        _ => return None,
    };
    let (_curve, _public) = (take(&mut fields)?, take(&mut fields)?);
    let head = &block[..block.len() - fields.len()];
    let number = take(&mut fields).filter(|number| number.len() < size)?;
    let comment = take(&mut fields)?;
    let mut wide = head.to_vec();
    put(&mut wide, &[&vec![0; size - number.len()], number].concat());
    put(&mut wide, comment);
    wide.extend((1..=7).take(wide.len().wrapping_neg() % 8)); // blocks of eight bytes
    let mut key = before.to_vec();
    put(&mut key, &wide);
    Some(key)
}

/// Signs with SHA-512. The library for keys takes the prime p of an RSA key for q, too, and so cannot sign.
fn sign_with_rsa(key: &RsaKeypair, data: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (public, private) = (&key.public, &key.private);
    let primes = vec![number(&private.p)?, number(&private.q)?];
    let key = rsa::RsaPrivateKey::from_components(
        number(&public.n)?,
        number(&public.e)?,
        number(&private.d)?,
        primes,
    )?;
    let signature = rsa::pkcs1v15::SigningKey::<rsa::sha2::Sha512>::new(key).try_sign(data)?;
    let mut blob = Vec::new();
    put(&mut blob, b"rsa-sha2-512");
    put(&mut blob, &signature.to_bytes());
    Ok(blob)
}

fn number(n: &Mpint) -> Result<rsa::BigUint, Box<dyn std::error::Error>> {
    let bytes = n.as_positive_bytes().ok_or("it has a negative number")?;
    Ok(rsa::BigUint::from_bytes_be(bytes))
}

/// Returns the certificate in the file beside a key, when there is one. The library for keys refuses certificates that
/// are good for ever, so this reads what the two have in common: a name, and in a certificate a nonce, stand before the
/// numbers of the key.
fn read_certificate(file: &Path, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut name = file.as_os_str().to_owned();
    name.push("-cert.pub");
    let name = PathBuf::from(name);
    let text = match std::fs::read_to_string(&name) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let certificate = text.split_whitespace().nth(1).and_then(|blob| STANDARD.decode(blob).ok());
    let of_the_key = |certificate: &[u8]| {
        let (mut key, mut certificate) = (key, certificate);
        let kind = take(&mut key)?;
        let certified = take(&mut certificate)?.strip_prefix(kind)?;
        take(&mut certificate)?;
        (certified == CERTIFIED && certificate.starts_with(key)).then_some(())
    };
    match certificate {
        Some(certificate) if of_the_key(&certificate).is_some() => Ok(Some(certificate)),
        _ => Err(io::Error::other(format!("{} is no certificate of the key beside it", name.display()))),
    }
}

/// Returns a signature in the format SSHSIG, which is not armored.
fn sshsig(key: &[u8], signature: &[u8]) -> Vec<u8> {
    let mut blob = b"SSHSIG\0\0\0\x01".to_vec();
    for field in [key, NAMESPACE.as_bytes(), b"", b"sha512", signature] {
        put(&mut blob, field);
    }
    blob
}

/// Takes the next string of SSH; `None`: there is none.
pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (field, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = after;
    Some(field)
}

/// Appends a string as SSH has it: its length before it.
pub(crate) fn put(blob: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).unwrap_or(u32::MAX); // no field has 4 GiB
    blob.extend_from_slice(&length.to_be_bytes());
    blob.extend_from_slice(field);
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        fs,
        process::{Child, Command, Stdio},
    };

    use super::*;

    const TYPES: [&[&str]; 5] = [
        &["-t", "ed25519"],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "3072"],
    ];

    fn challenge() -> v1::Challenge {
        v1::Challenge {
            server_id: "server".into(),
            nonce: vec![0, 0xab],
            expires_at: 7,
            namespace: NAMESPACE.into(),
        }
    }

    /// Runs a program of OpenSSH in a folder, and returns what it prints.
    fn run(folder: &Path, program: &str, args: &[&str], input: Option<&str>) -> String {
        let stdin = match input {
            Some(name) => Stdio::from(fs::File::open(folder.join(name)).unwrap()),
            None => Stdio::null(),
        };
        let out = Command::new(program).args(args).current_dir(folder).stdin(stdin).output();
        let out = out.unwrap_or_else(|err| panic!("{program} of OpenSSH, which makes the keys: {err}"));
        assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn make_key(folder: &Path, name: &str, kind: &[&str]) {
        run(folder, "ssh-keygen", &[kind, &["-q", "-N", "", "-C", "test", "-f", name]].concat(), None);
    }

    /// OpenSSH takes the signature of the text that the contract names.
    fn verify(folder: &Path, allowed: &str, signature: &[u8]) {
        fs::write(folder.join("blob"), signature).unwrap();
        let armor = run(folder, "base64", &["-w", "70", "blob"], None);
        let pem = format!("-----BEGIN SSH SIGNATURE-----\n{armor}-----END SSH SIGNATURE-----\n");
        fs::write(folder.join("signature"), pem).unwrap();
        fs::write(folder.join("allowed"), allowed).unwrap();
        fs::write(folder.join("text"), "skerry-pack-v1\nserver\n00ab\n7\ncrm\nhost:1\n").unwrap();
        let args = ["-Y", "verify", "-n", NAMESPACE, "-I", "crm", "-f", "allowed", "-s", "signature"];
        run(folder, "ssh-keygen", &args, Some("text"));
    }

    async fn sign(credential: Credential) -> io::Result<Vec<u8>> {
        credential.sign(&challenge(), "crm", "host:1").await
    }

    #[tokio::test]
    async fn openssh_takes_the_signature_of_each_type_of_key() {
        for kind in TYPES {
            let folder = tempfile::tempdir().unwrap();
            make_key(folder.path(), "key", kind);
            let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
            let signature = sign(Credential::ssh_key_file(folder.path().join("key"))).await.unwrap();
            verify(folder.path(), &format!("crm {public}"), &signature);
        }
    }

    /// OpenSSH writes the private number of a key without the zeros before it. This makes keys until one has some.
    #[tokio::test]
    async fn a_key_with_a_short_number_signs() {
        for _ in 0..400 {
            let folder = tempfile::tempdir().unwrap();
            make_key(folder.path(), "key", &["-t", "ecdsa", "-b", "521"]);
            let text = fs::read_to_string(folder.path().join("key")).unwrap();
            if widened(&unarmored(&text).unwrap()).is_none() {
                continue;
            }
            let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
            let signature = sign(Credential::ssh_key_file(folder.path().join("key"))).await.unwrap();
            return verify(folder.path(), &format!("crm {public}"), &signature);
        }
        panic!("none of 400 keys has a short number");
    }

    struct Agent(Child);

    impl Drop for Agent {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    async fn an_agent_signs_with_the_key_of_the_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent");
        let agent = Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn();
        let mut agent = Agent(agent.expect("ssh-agent of OpenSSH is there"));
        while !socket.exists() {
            assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
            tokio::task::yield_now().await;
        }
        for (i, kind) in TYPES.iter().enumerate() {
            let name = format!("key{i}");
            make_key(folder.path(), &name, kind);
            let added = Command::new("ssh-add")
                .arg("-q")
                .arg(folder.path().join(&name))
                .env("SSH_AUTH_SOCK", &socket)
                .output();
            assert!(added.unwrap().status.success());
        }
        for i in 0..TYPES.len() {
            let file = format!("key{i}.pub");
            let listed = run(folder.path(), "ssh-keygen", &["-l", "-f", &file], None);
            let fingerprint = listed.split(' ').nth(1).unwrap();
            let signature = sign(Credential::ssh_agent(&socket, fingerprint)).await.unwrap();
            verify(
                folder.path(),
                &format!("crm {}", fs::read_to_string(folder.path().join(&file)).unwrap()),
                &signature,
            );
        }
        let err = sign(Credential::ssh_agent(&socket, "SHA256:none")).await.unwrap_err();
        assert_eq!(err.to_string(), "the SSH agent: it has no key SHA256:none");
    }

    #[tokio::test]
    async fn a_certificate_beside_the_key_is_sent_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["ca", "key", "other"] {
            make_key(path, name, TYPES[0]);
        }
        run(path, "ssh-keygen", &["-q", "-s", "ca", "-I", "test", "-n", "crm", "key.pub"], None);
        let signature = sign(Credential::ssh_key_file(path.join("key"))).await.unwrap();
        verify(
            path,
            &format!("crm cert-authority {}", fs::read_to_string(path.join("ca.pub")).unwrap()),
            &signature,
        );

        fs::copy(path.join("key-cert.pub"), path.join("other-cert.pub")).unwrap();
        let err = sign(Credential::ssh_key_file(path.join("other"))).await.unwrap_err().to_string();
        assert!(err.contains("is no certificate of the key beside it"), "{err}");
    }

    #[tokio::test]
    async fn what_no_server_of_skerry_asks_is_not_signed() {
        let folder = tempfile::tempdir().unwrap();
        make_key(folder.path(), "key", TYPES[0]);
        let credential = Credential::ssh_key_file(folder.path().join("key"));
        let git = v1::Challenge { namespace: "git".into(), ..challenge() };
        let lines = v1::Challenge { server_id: "a\nb".into(), ..challenge() };
        for wrong in [git, lines] {
            credential.sign(&wrong, "crm", "host:1").await.unwrap_err();
        }
        run(folder.path(), "ssh-keygen", &["-q", "-p", "-N", "secret", "-f", "key"], None);
        let err = sign(credential).await.unwrap_err().to_string();
        assert!(err.contains("it has a passphrase"), "{err}");
    }

    #[tokio::test]
    async fn the_lines_of_a_key_may_be_of_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        make_key(folder.path(), "key", TYPES[0]);
        let text = fs::read_to_string(&file).unwrap();
        let key = sign(Credential::ssh_key_file(&file)).await.unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(
            &file,
            [lines[0], &lines[1..lines.len() - 1].concat(), lines[lines.len() - 1]].join("\r\n"),
        )
        .unwrap();
        assert_eq!(sign(Credential::ssh_key_file(&file)).await.unwrap(), key);
        fs::write(&file, "-----BEGIN RSA PRIVATE KEY-----").unwrap();
        let err = sign(Credential::ssh_key_file(&file)).await.unwrap_err().to_string();
        assert!(err.contains("it is not in OpenSSH's format"), "{err}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let server = crate::Server::new("http://host").credential(Credential::bearer_key("sk_secret"));
        assert!(!format!("{server:?}").contains("secret"));
        let err = Credential::bearer_key("sk_secret\n").apply(&mut MetadataMap::new()).unwrap_err();
        assert!(!err.to_string().contains("secret"), "{err}");
    }
}
