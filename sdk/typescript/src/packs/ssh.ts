import { createHash, createPrivateKey, sign, type JsonWebKey, type KeyObject } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { ParsedKey } from "ssh2";
import type { Credential } from "./credential.js";
import { messageOf } from "./pack.js";
import { optional } from "./schema.js";
import type { Challenge } from "./v1/packs_pb.js";

/** The namespace of the signatures of packs. A server that asks for another one is none of Skerry. */
const namespace = "skerry-pack@v1";
const hash = "sha512";
const empty = Buffer.alloc(0);

/** A key that signs: its name and bytes as SSH has them, and what makes the bytes of a signature. */
interface Signer {
  readonly algorithm: string;
  readonly publicKey: Buffer;
  sign(data: Buffer): Promise<Buffer>;
}

/**
 * Signs with a private key in a file that has no passphrase. A certificate beside it, in FILE-cert.pub, is sent along.
 * The files are read for each connection.
 */
export function sshKeyFile(file: string): Credential {
  return signing(async () => {
    const key = await privateKey(file);
    const signer = signerOf(key);
    const publicKey = await certificate(`${file}-cert.pub`, signer.publicKey);
    return { ...signer, publicKey };
  });
}

/**
 * Signs with a key in an agent that listens on a unix socket, which SSH_AUTH_SOCK often names. `fingerprint` is the
 * key's, as `ssh-add -l` prints it.
 */
export function sshAgent(socket: string, fingerprint: string): Credential {
  return signing(async () => {
    const { default: ssh2 } = await optional("ssh2", () => import("ssh2"));
    const agent = new ssh2.OpenSSHAgent(socket);
    const keys = (await answered<unknown[]>((done) => agent.getIdentities(done))) as ParsedKey[]; // OpenSSHAgent has no others
    const key = keys.find((k) => fingerprintOf(k.getPublicSSH()) === fingerprint);
    if (key === undefined) throw new Error(`the SSH agent has no key ${fingerprint}`);
    const rsa = key.type === "ssh-rsa";
    return {
      algorithm: rsa ? "rsa-sha2-512" : key.type,
      publicKey: key.getPublicSSH(),
      sign: (data) => answered<Buffer>((done) => agent.sign(key, data, rsa ? { hash: "sha512" } : {}, done)),
    };
  });
}

function answered<T>(ask: (done: (err?: Error | null, value?: T) => void) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    ask((err, value) => {
      if (err || value === undefined) reject(new Error(`the SSH agent: ${err?.message ?? "no answer"}`));
      else resolve(value);
    });
  });
}

/** `open` returns the key anew for each connection: an agent may have been started again. */
function signing(open: () => Promise<Signer>): Credential {
  return {
    sign: async (challenge, pack, address) => {
      if (challenge.namespace !== namespace || /[\r\n]/.test(challenge.serverId)) {
        throw new Error(`the server asks for a signature of the namespace ${JSON.stringify(challenge.namespace.slice(0, 60))}`);
      }
      return signature(await open(), signedText(challenge, pack, address));
    },
  };
}

function signedText(c: Challenge, pack: string, address: string): string {
  return ["skerry-pack-v1", c.serverId, Buffer.from(c.nonce).toString("hex"), c.expiresAt, pack, address, ""].join("\n");
}

/** A signature of OpenSSH (PROTOCOL.sshsig). */
async function signature(signer: Signer, text: string): Promise<Uint8Array<ArrayBuffer>> {
  const digest = createHash(hash).update(text).digest();
  const data = Buffer.concat([Buffer.from("SSHSIG"), field(namespace), field(""), field(hash), field(digest)]);
  const signed = Buffer.concat([field(signer.algorithm), field(await signer.sign(data))]);
  return new Uint8Array(Buffer.concat([Buffer.from("SSHSIG"), uint32(1), field(signer.publicKey), field(namespace), field(""), field(hash), field(signed)]));
}

async function privateKey(file: string): Promise<KeyObject> {
  const text = await readFile(file, "utf8");
  try {
    return text.includes("BEGIN OPENSSH PRIVATE KEY") ? createPrivateKey({ key: openSSHKey(text), format: "jwk" }) : createPrivateKey(text);
  } catch (err) {
    throw new Error(`the key in ${file}: ${messageOf(err)}`, { cause: err });
  }
}

/** Reads the format of ssh-keygen (PROTOCOL.key), which Node does not. */
function openSSHKey(text: string): JsonWebKey {
  const body = Buffer.from(text.replace(/-----[^-]*-----/g, ""), "base64");
  const head = body.subarray("openssh-key-v1\0".length);
  const [cipher = empty] = fields(head, 1);
  if (cipher.toString() !== "none") throw new Error("it has a passphrase: use an agent");
  const [, secret = empty] = fields(behind(head, 3).subarray(4), 2); // behind cipher, kdf, its options, and the number of keys
  const key = secret.subarray(8); // behind two check numbers
  const kind = fields(key, 1).toString();
  const url = (b: Buffer | undefined, size = 0) => padded(b ?? empty, size).toString("base64url");
  if (kind === "ssh-ed25519") {
    const [, x, both = empty] = fields(key, 3);
    return { kty: "OKP", crv: "Ed25519", x: url(x, 32), d: url(both.subarray(0, 32), 32) };
  }
  if (kind === "ssh-rsa") {
    const [, n, e, d = empty, qi, p = empty, q = empty] = fields(key, 7);
    const less = (prime: Buffer) => bytes(number(d) % (number(prime) - 1n));
    return { kty: "RSA", n: url(n), e: url(e), d: url(d), p: url(p), q: url(q), dp: url(less(p)), dq: url(less(q)), qi: url(qi) };
  }
  const crv = Object.keys(curves).find((c) => `ecdsa-sha2-${curves[c]?.name}` === kind);
  if (crv === undefined) throw new Error(wrongKind);
  const [, , point = empty, d] = fields(key, 4);
  const size = (point.length - 1) / 2;
  return { kty: "EC", crv, x: url(point.subarray(1, 1 + size), size), y: url(point.subarray(1 + size), size), d: url(d, size) };
}

const wrongKind = "use a key of Ed25519, ECDSA or RSA";

/** The curves, by their names in JWK. */
const curves: Record<string, { name: string; hash: string }> = {
  "P-256": { name: "nistp256", hash: "sha256" },
  "P-384": { name: "nistp384", hash: "sha384" },
  "P-521": { name: "nistp521", hash: "sha512" },
};

function signerOf(key: KeyObject): Signer {
  const jwk = key.export({ format: "jwk" });
  const part = (name: "n" | "e" | "x" | "y") => Buffer.from(jwk[name] ?? "", "base64url");
  const curve = curves[jwk.crv ?? ""];
  if (jwk.kty === "OKP" && jwk.crv === "Ed25519") {
    return {
      algorithm: "ssh-ed25519",
      publicKey: Buffer.concat([field("ssh-ed25519"), field(part("x"))]),
      sign: async (data) => sign(null, data, key),
    };
  }
  if (jwk.kty === "RSA") {
    return {
      algorithm: "rsa-sha2-512",
      publicKey: Buffer.concat([field("ssh-rsa"), field(mpint(part("e"))), field(mpint(part("n")))]),
      sign: async (data) => sign("sha512", data, key),
    };
  }
  if (jwk.kty !== "EC" || curve === undefined) throw new Error(wrongKind);
  const algorithm = `ecdsa-sha2-${curve.name}`;
  return {
    algorithm,
    publicKey: Buffer.concat([field(algorithm), field(curve.name), field(Buffer.concat([Buffer.from([4]), part("x"), part("y")]))]),
    sign: async (data) => {
      const both = sign(curve.hash, data, { key, dsaEncoding: "ieee-p1363" });
      return Buffer.concat([field(mpint(both.subarray(0, both.length / 2))), field(mpint(both.subarray(both.length / 2)))]);
    },
  };
}

/** The certificate in a file, or the key itself where there is no such file. */
async function certificate(file: string, publicKey: Buffer): Promise<Buffer> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === "ENOENT") return publicKey;
    throw err;
  }
  const found = Buffer.from(text.trim().split(/\s+/)[1] ?? "", "base64");
  // Behind its name and a nonce, a certificate has what a key has behind its name.
  const ofKey = behind(publicKey, 1);
  if (!found.includes("-cert-v01@openssh.com") || !behind(found, 2).subarray(0, ofKey.length).equals(ofKey)) {
    throw new Error(`${file} is no certificate of the key beside it`);
  }
  return found;
}

function fingerprintOf(publicKey: Buffer): string {
  return `SHA256:${createHash("sha256").update(publicKey).digest("base64").replace(/=+$/, "")}`;
}

function uint32(n: number): Buffer {
  const b = Buffer.alloc(4);
  b.writeUInt32BE(n);
  return b;
}

/** A text or bytes with their length before them. */
function field(value: string | Buffer): Buffer {
  const b = typeof value === "string" ? Buffer.from(value) : value;
  return Buffer.concat([uint32(b.length), b]);
}

/** A positive number: without zeros before it, but one where it would else be negative. */
function mpint(b: Buffer): Buffer {
  const digits = padded(b, 0);
  return (digits[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), digits]) : digits;
}

/** A number of so many bytes, or of as many as it needs. */
function padded(b: Buffer, size: number): Buffer {
  const first = b.findIndex((byte) => byte !== 0);
  const digits = first < 0 ? empty : b.subarray(first);
  return Buffer.concat([Buffer.alloc(Math.max(size - digits.length, 0)), digits]);
}

function number(b: Buffer): bigint {
  return BigInt(`0x0${b.toString("hex")}`);
}

function bytes(n: bigint): Buffer {
  const hex = n.toString(16);
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, "hex");
}

/** The first fields. */
function fields(b: Buffer, count: number): Buffer[] {
  const all: Buffer[] = [];
  for (let rest = b; all.length < count; rest = behind(rest, 1)) {
    if (rest.length < 4 || rest.length < 4 + rest.readUInt32BE()) throw new Error("it is no key");
    all.push(rest.subarray(4, 4 + rest.readUInt32BE()));
  }
  return all;
}

/** What is behind so many fields. */
function behind(b: Buffer, count: number): Buffer {
  let rest = b;
  for (let i = 0; i < count; i++) rest = rest.length < 4 ? empty : rest.subarray(4 + rest.readUInt32BE());
  return rest;
}
