package record

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var writerName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// IsWriter reports whether a text may name a writer: it is the name of its folder too.
func IsWriter(name string) bool { return writerName.MatchString(name) }

// Head says which record of a writer has which hash, and so all records before it, too. A signed one is a checkpoint:
// its holder can tell whether the log was cut before it or written anew. The log has signed heads among its
// records (ActionHead, in Args).
type Head struct {
	Writer string    `json:"writer"`
	Seq    uint64    `json:"seq"`
	Hash   string    `json:"hash"`
	Time   time.Time `json:"time"` // of the signature; of the record, when there is none
	// Signer is the KeyID of the key, Signature its Ed25519 signature of Text. Both are empty in a head that is not signed.
	Signer    string `json:"signer,omitempty"`
	Signature []byte `json:"signature,omitempty"` // base64 in JSON
}

// Text is what is signed: six lines.
func (h Head) Text() []byte {
	return fmt.Appendf(nil, "skerry audit head v1\n%s\n%d\n%s\n%s\n%s\n", h.Writer, h.Seq, h.Hash, h.Time.UTC().Format(time.RFC3339Nano), h.Signer)
}

// SignedBy reports whether the signature is one of this key.
func (h Head) SignedBy(k ed25519.PublicKey) bool {
	return len(k) == ed25519.PublicKeySize && ed25519.Verify(k, h.Text(), h.Signature)
}

// String returns writer:seq:hash, which ParseHead reads.
func (h Head) String() string { return fmt.Sprintf("%s:%d:%s", h.Writer, h.Seq, h.Hash) }

// ParseHead reads writer:seq:hash.
func ParseHead(text string) (Head, error) {
	var h Head
	parts := strings.Split(text, ":")
	ok := len(parts) == 3 && writerName.MatchString(parts[0]) && len(parts[2]) == hashLen
	if ok {
		h.Writer, h.Hash = parts[0], parts[2]
		_, err := fmt.Sscanf(parts[1], "%d", &h.Seq)
		ok = err == nil && h.Seq > 0 && fmt.Sprint(h.Seq) == parts[1]
	}
	if !ok {
		return h, fmt.Errorf("%.200q is no head: want writer:seq:hash, as skerry audit checkpoint prints it", text)
	}
	return h, nil
}

// KeyID names a public key: the first 16 digits of the hexadecimal sha256 of its 32 bytes.
func KeyID(k ed25519.PublicKey) string {
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:8])
}

// CoveredBy is the last record that needs no other signature: that of the head itself does not, when it follows what
// is signed.
func CoveredBy(r Record, h Head) uint64 {
	if r.Seq == h.Seq+1 {
		return r.Seq
	}
	return h.Seq
}

// HeadOf reads the head that a record holds.
func HeadOf(r Record) (h Head, ok bool) {
	return h, r.Action == ActionHead && json.Unmarshal(r.Args, &h) == nil && h.Seq > 0 && h.Seq < r.Seq
}

// DefaultSignEvery is after how many records a head is signed.
const DefaultSignEvery = 256

// Manifest describes a full segment. It lies beside it in the archive, as WRITER/FIRST.json.
type Manifest struct {
	Writer string    `json:"writer"`
	First  uint64    `json:"first"`
	Last   uint64    `json:"last"`
	Prev   string    `json:"prev"` // of the first record
	Hash   string    `json:"hash"` // of the last one
	From   time.Time `json:"from"` // time of the first record
	To     time.Time `json:"to"`
	Bytes  int64     `json:"bytes"` // of the segment, not compressed
	SHA256 string    `json:"sha256"`
}
