package packs

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

const (
	// Namespace is that of the signatures by which packs prove who they are.
	Namespace = "skerry-pack@v1"
	// handshakeTime is how long each message of the handshake may take.
	handshakeTime = 10 * time.Second
	// maxOpening bounds the streams that are not registered yet, of all senders, and openingOfSite those of one: who has no
	// credential holds a place for seconds.
	maxOpening    = 64
	openingOfSite = 16
	nonceBytes    = 32
	// lastWrite is how long a message that is being sent when a session ends may take.
	lastWrite = time.Second
	maxOpen   = 256 // characters of a field of Open
	// maxMessage holds a manifest.
	maxMessage = manifest.MaxBytes + 1<<20
	// maxValues are the tools of a manifest ten times too large, and their capabilities: the error says then how many.
	maxValues = 100_000
)

// frames has the limits of what packs send.
var frames = boundedproto.Table{
	nameOf(&packsv1.PackMessage{}): {Bytes: maxMessage, Values: maxValues},
}

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

// Peer is who opened a stream.
type Peer struct {
	Source string // address
	Host   string // that the pack has dialled, as its request says
	// Caller is whose bearer key came with the request; nil: there was none.
	Caller *sandbox.Caller
	// ChannelKey is the key of a thread's skill that came instead; "": there was none.
	ChannelKey string
	// Certificate is the client's, which the listener has checked; nil: there is none.
	Certificate *x509.Certificate
	// Unblock ends a read of the stream that waits, or a write.
	Unblock func(write bool)
}

// Unblock is that of a Peer whose request has this control.
func Unblock(c *http.ResponseController) func(write bool) {
	return func(write bool) {
		past := time.Unix(1, 0)
		_ = c.SetReadDeadline(past)
		if write {
			_ = c.SetWriteDeadline(past)
		}
	}
}

type peerKey struct{}

// WithPeer returns a context for Handler that says who opens the stream.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// Path is where Handler is served.
const Path = "/" + packsv1connect.PackServiceName + "/"

// Handler answers packs, by gRPC and Connect. Its requests have a peer.
func (r *Registry) Handler() http.Handler {
	_, h := packsv1connect.NewPackServiceHandler(service{r},
		connect.WithReadMaxBytes(maxMessage), connect.WithCodec(boundedproto.Codec{Table: frames}),
		connect.WithCodec(boundedproto.JSON{Table: frames, Named: "json"}))
	return h
}

// service is the registry as the contract has it.
type service struct{ r *Registry }

type stream = connect.BidiStream[packsv1.PackMessage, packsv1.ServerMessage]

// Connect implements packsv1connect.PackServiceHandler.
func (v service) Connect(ctx context.Context, st *stream) error {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	if !ok {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("a stream without its peer"))
	}
	s, m, err := v.admit(ctx, st, peer)
	if err != nil {
		return refusal(err)
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	return refusal(v.serve(run, st, s, m))
}

// admit does the handshake.
func (v service) admit(ctx context.Context, st *stream, peer Peer) (*session, *manifest.Manifest, error) {
	leave, err := v.r.opening.enter(peer.Source)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	// The key of a skill cannot be guessed, and a program whose skill has gone may say an old one: it slows no pack of its
	// address, and none slows it.
	if wait := v.r.slow.wait(peer.Source); wait > 0 && peer.ChannelKey == "" {
		return nil, nil, sandbox.Errorf(sandbox.CapacityExceeded, "too many wrong credentials came from here: wait %s", wait.Round(time.Second))
	}
	msg, err := receive(st, peer)
	if err != nil {
		return nil, nil, err
	}
	open := msg.GetOpen()
	if open == nil {
		return nil, nil, breach("the first message is Open")
	}
	s, m, err := v.register(ctx, st, peer, open)
	if err != nil {
		v.r.refused(ctx, Event{Pack: excerptOf(open.GetPackId(), maxOpen), Source: peer.Source, What: Refused, Detail: detailOf(err)})
	}
	return s, m, err
}

// register answers Open with a challenge, and checks what comes back. Whatever ends it before a credential is proved counts as a wrong
// one.
func (v service) register(ctx context.Context, st *stream, peer Peer, open *packsv1.Open) (_ *session, _ *manifest.Manifest, err error) {
	proved := false
	defer func() {
		if err != nil && !proved && peer.ChannelKey == "" {
			v.r.slow.wrong(peer.Source)
		}
	}()
	if err := manifest.CheckID(open.GetPackId()); err != nil {
		return nil, nil, err
	}
	if len(open.GetInstance()) > maxOpen || len(open.GetAddress()) > maxOpen {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "instance, address: use at most %d characters", maxOpen)
	}
	ch := &packsv1.Challenge{ServerId: v.r.o.ServerID, Nonce: make([]byte, nonceBytes), ExpiresAt: time.Now().Add(handshakeTime).Unix(), Namespace: Namespace}
	_, _ = rand.Read(ch.Nonce) // never fails (crypto/rand)
	if err := st.Send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Challenge{Challenge: ch}}); err != nil {
		return nil, nil, err
	}
	msg, err := receive(st, peer)
	if err != nil {
		return nil, nil, err
	}
	reg := msg.GetRegister()
	if reg == nil {
		return nil, nil, breach("the second message is Register")
	}
	grant, err := v.r.identify(ctx, peer, proof{open: open, challenge: ch, signature: reg.GetSignature()})
	if err != nil {
		return nil, nil, err
	}
	proved = true
	if !Covers(grant.Packs, open.GetPackId()) {
		return nil, nil, sandbox.Errorf(sandbox.Forbidden, "%s may not provide the pack %q: it is for %s", grant.Identity, open.GetPackId(), strings.Join(grant.Packs, ", "))
	}
	m, err := grant.manifest(reg.GetManifest())
	if err != nil {
		return nil, nil, err
	}
	if m.ID != open.GetPackId() {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "pack_id: the manifest is of %q, and the stream was opened for %q", m.ID, open.GetPackId())
	}
	return newSession(v.r, peer, grant, open.GetInstance()), m, nil
}

// receive reads one message of the handshake.
func receive(st *stream, peer Peer) (*packsv1.PackMessage, error) {
	unblocked := make(chan struct{})
	late := time.AfterFunc(handshakeTime, func() { defer close(unblocked); peer.Unblock(false) })
	msg, err := st.Receive()
	if !late.Stop() {
		<-unblocked // the response must not be touched once the handler has returned
		return nil, sandbox.Errorf(sandbox.Timeout, "no message within %s", handshakeTime)
	}
	return msg, err
}

// serve runs a session to its end.
func (v service) serve(ctx context.Context, st *stream, s *session, m *manifest.Manifest) error {
	o := &v.r.o
	p, err := v.r.register(ctx, s, m)
	if err != nil {
		v.r.record(ctx, Event{Pack: m.ID, Tenant: s.grant.Tenant, Thread: s.grant.Thread, Identity: s.grant.Identity, Source: s.peer.Source, What: Refused, Detail: detailOf(err)})
		return err
	}
	o.Others.Joined(ctx, streamOf(s, m, time.Now()))
	v.r.record(ctx, s.event(Connected, fmt.Sprintf("version %s, %d tools", m.Version, len(m.Tools))))
	o.Log.Info("pack: connected", "pack", p.key.id, "tenant", p.key.tenant, "identity", s.grant.Identity, "source", s.peer.Source, "tools", len(m.Tools))
	s.urgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Welcome{Welcome: &packsv1.Welcome{
		SessionId: p.key.id + "/" + p.number, ServerVersion: o.Version, HeartbeatSeconds: int32(max(o.Heartbeat/time.Second, 1)), //nolint:gosec // seconds
		CallWindow: callWindow, ConnectionWindow: connectionWindow, MaxPartBytes: maxPart, MaxResultBytes: int64(o.MaxResult),
	}}})
	written, watched, unblocked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(written); s.write(st) }()
	go func() { defer close(watched); s.watch(ctx) }()
	readEnded := make(chan struct{})
	go func() { defer close(unblocked); s.unblock(written, readEnded) }()
	s.end(s.read(ctx, st))
	close(readEnded)
	p.left(s)
	o.Others.Changed()
	<-written
	<-watched
	<-unblocked // the response must not be touched once the handler has returned
	why := s.why()
	v.r.record(ctx, s.event(Ended, detailOf(why)))
	o.Log.Info("pack: ended", "pack", p.key.id, "tenant", p.key.tenant, "why", detailOf(why))
	return why
}

// read takes in messages until the stream or the session ends.
func (s *session) read(ctx context.Context, st *stream) error {
	for {
		if err := s.rate.Wait(ctx); err != nil {
			return goneOr(ctx)
		}
		msg, err := st.Receive()
		if err != nil {
			return readError(err)
		}
		if err := s.handle(ctx, msg); err != nil {
			return err
		}
	}
}

// readError is why there is no next message.
func readError(err error) error {
	if connect.CodeOf(err) == connect.CodeInvalidArgument || connect.CodeOf(err) == connect.CodeResourceExhausted {
		return breach("%s", excerptOf(err.Error(), maxErrorText))
	}
	return sandbox.Errorf(sandbox.Unavailable, "its connection ended")
}

// write sends what waits, until the session ends.
func (s *session) write(st *stream) {
	for {
		msg, id, ok := s.out.next()
		if !ok {
			select {
			case <-s.out.wake:
				continue
			case <-s.ended:
				return
			}
		}
		if id != 0 && !s.goesOut(id) {
			continue
		}
		if err := st.Send(msg); err != nil {
			s.end(sandbox.Errorf(sandbox.Unavailable, "its connection ended"))
			return
		}
	}
}

// unblock ends the reads and writes of a session that has ended, again and again: another read may have begun meanwhile.
func (s *session) unblock(written, read <-chan struct{}) {
	<-s.ended
	const pause = 20 * time.Millisecond
	again, began := time.NewTicker(pause), time.Now()
	defer again.Stop()
	for written != nil || read != nil {
		select {
		case <-written:
			written = nil
		case <-read:
			read = nil
		case <-again.C:
			if read != nil {
				s.peer.Unblock(false)
			}
			if time.Since(began) > lastWrite && written != nil {
				s.peer.Unblock(true) // the pack does not read
			}
		}
	}
}

// refusal is an error as the contract has it.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	code := connect.CodeUnavailable
	switch sandbox.KindOf(err) {
	case sandbox.Unauthorized:
		code = connect.CodeUnauthenticated
	case sandbox.Forbidden:
		code = connect.CodePermissionDenied
	case sandbox.Invalid:
		code = connect.CodeInvalidArgument
	case sandbox.Conflict:
		code = connect.CodeAlreadyExists
	case sandbox.CapacityExceeded, sandbox.QuotaExceeded:
		code = connect.CodeResourceExhausted
	case sandbox.Timeout:
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, fmt.Errorf("%s", detailOf(err)))
}

// excerptOf is the beginning of a text of a stranger.
func excerptOf(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text
}

// signed is the text that a pack signs.
func (p proof) signed() string {
	return fmt.Sprintf("skerry-pack-v1\n%s\n%s\n%d\n%s\n%s\n", p.challenge.GetServerId(), hex.EncodeToString(p.challenge.GetNonce()), p.challenge.GetExpiresAt(), p.open.GetPackId(), p.open.GetAddress())
}
