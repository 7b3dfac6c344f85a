package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

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
	ok := len(parts) == 3 && writerPattern.MatchString(parts[0]) && len(parts[2]) == hashLen
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

// Signer signs heads.
type Signer interface {
	// Sign fills in Signer and Signature. It keeps to ctx.
	Sign(ctx context.Context, h Head) (Head, error)
}

const (
	// DefaultSignEvery is after how many records a head is signed.
	DefaultSignEvery = 256
	// DefaultSignWithin is how long after a record one is signed at the latest.
	DefaultSignWithin = time.Second
	// signTimeout bounds one signature.
	signTimeout = 5 * time.Second
)

func (o *Options) setSigning() {
	if o.SignEvery == 0 {
		o.SignEvery = DefaultSignEvery
	}
	if o.SignWithin <= 0 {
		o.SignWithin = DefaultSignWithin
	}
}

// keepSigned signs the head while there are records that no signature covers, until stop is closed.
func (l *Log) keepSigned(stop <-chan struct{}) {
	tick := time.NewTicker(l.o.SignWithin)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		case <-l.signNow:
		}
		l.sign()
	}
}

// signLast signs the head when the log is closed.
func (l *Log) signLast() {
	if l.o.Signer != nil {
		l.sign()
	}
}

// sign records a signature of the last durable record, unless one covers it already.
func (l *Log) sign() {
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	l.mu.Lock()
	last, due := l.appended.Load(), l.appended.Load() > l.signed && l.broken == nil && !l.closed
	l.mu.Unlock()
	if !due || l.durable(ctx, last) != nil {
		return
	}
	l.mu.Lock()
	h := l.durably
	l.mu.Unlock()
	h.Time = time.Now().UTC()
	h, err := l.o.Signer.Sign(ctx, h)
	if err == nil {
		err = l.noteHead(h)
	}
	l.mu.Lock()
	was := l.signErr
	l.signErr = err
	l.mu.Unlock()
	switch {
	case was == nil && err != nil:
		l.log.Error("the audit log cannot be signed; it goes on unsigned", "error", err)
	case was != nil && err == nil:
		l.log.Info("the audit log is signed again")
	}
}

// noteHead appends a signed head.
func (l *Log) noteHead(h Head) error {
	r, err := l.own(ActionHead, fmt.Sprintf("record %d", h.Seq))
	if err != nil {
		return err
	}
	if r.Args, err = json.Marshal(h); err != nil {
		return err
	}
	if l.unsignedAtOpen > 0 {
		r.Detail = fmt.Sprintf("%d records before the start of the server were not signed when it ended", l.unsignedAtOpen)
	}
	r.Outcome = "ok"
	if r, err = l.append(r); err != nil {
		return err
	}
	if l.ship != nil {
		l.ship.wake()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signed, l.signedAt, l.unsignedAtOpen = coveredBy(r, h), h.Time, 0
	return nil
}

// coveredBy is the last record that needs no other signature: that of the head itself does not, when it follows what
// is signed.
func coveredBy(r Record, h Head) uint64 {
	if r.Seq == h.Seq+1 {
		return r.Seq
	}
	return h.Seq
}

// headOf reads the head that a record holds.
func headOf(r Record) (h Head, ok bool) {
	return h, r.Action == ActionHead && json.Unmarshal(r.Args, &h) == nil && h.Seq > 0 && h.Seq < r.Seq
}

// resumed takes a record into account that an open log begins with.
func (l *Log) resumed(r Record) {
	if h, ok := headOf(r); ok {
		l.signed, l.signedAt = coveredBy(r, h), h.Time
	}
}

// Checkpoint signs the head now and returns it.
func (l *Log) Checkpoint(ctx context.Context) (Head, error) {
	l.mu.Lock()
	last := l.appended.Load()
	l.mu.Unlock()
	if err := l.durable(ctx, last); err != nil {
		return Head{}, err
	}
	l.mu.Lock()
	h := l.durably
	l.mu.Unlock()
	h.Time = time.Now().UTC()
	if l.o.Signer == nil || h.Seq == 0 {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	return l.o.Signer.Sign(ctx, h)
}
