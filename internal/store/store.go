package store

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
)

// callTimeout bounds one call: long enough for a failover's hiccup, short enough that a request that needs
// Redis fails before its client stops waiting.
const callTimeout = 2 * time.Second

// Options say where the state is kept.
type Options struct {
	// URL of Redis (redis://, rediss:// or unix://). With addr= in its query it is one node of a
	// cluster, with master_name= a sentinel, whose own password is the URL's; that of Redis is password= then. "" = embedded.
	URL string
	// Journal is the file of the durable records in embedded mode; its folder must exist. "" = they
	// are lost with the process.
	Journal string
	// HighestUID returns the highest uid that anything has, for when the counter is lost; nil: NextUID counts from min.
	HighestUID func() (int, error)
	// Replica names this process among the processes that share the state. Alive tells which of them are
	// there; nil: unknown.
	Replica string
	Alive   func(replica string) bool
	Log     *slog.Logger // nil = none
}

// Store is the state. Make one with Open.
type Store struct {
	*conn
	approvalRecords
	keyRecords
	leases
	counters
	secretRecords
	packKeyRecords
	packStreams
	threadRecords
}

// conn is the connection that the parts share.
type conn struct {
	rdb      redis.UniversalClient
	embedded *embedded        // nil with a Redis of its own
	journal  *journal.Journal // nil unless embedded with a file

	highestUID func() (int, error) // of Options, as the next two
	replica    string
	alive      func(replica string) bool

	answers answerBounds

	closing sync.Once
	closed  error
}

func newStore(c *conn) *Store {
	c.answers = defaultAnswers
	return &Store{
		conn: c, approvalRecords: approvalRecords{c}, keyRecords: keyRecords{c}, leases: leases{c}, counters: counters{c}, secretRecords: secretRecords{c},
		packKeyRecords: packKeyRecords{c}, packStreams: packStreams{c}, threadRecords: threadRecords{c},
	}
}

// Open makes a Store. With a URL it does not wait for Redis: Ping says whether it is there. In
// embedded mode it reads the journal, Conflict when another process has it open.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	quietClient()
	if o.URL != "" {
		rdb, err := connect(o.URL)
		if err != nil {
			return nil, err
		}
		return newStore(&conn{rdb: rdb, highestUID: o.HighestUID, replica: o.Replica, alive: o.Alive}), nil
	}
	return openEmbedded(ctx, o)
}

func openEmbedded(ctx context.Context, o Options) (*Store, error) {
	e, err := startEmbedded()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the embedded state cannot be started")
	}
	s := newStore(&conn{embedded: e, rdb: e.client(), highestUID: o.HighestUID, replica: o.Replica, alive: o.Alive})
	if o.Journal == "" {
		return s, nil
	}
	j, entries, err := journal.Open(o.Journal, o.Log)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.journal = j
	for _, en := range entries {
		if oldUsage(en.Key, time.Now()) {
			j.Drop(en)
			continue
		}
		e.load(en)
		e.reopen(en)
	}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the Store; durable records are on disk when it returns. It may be called twice.
func (s *Store) Close() error {
	s.closing.Do(func() {
		err := s.rdb.Close()
		if s.embedded != nil {
			s.embedded.close()
		}
		if s.journal != nil {
			err = errors.Join(err, s.journal.Close())
		}
		s.closed = err
	})
	return s.closed
}

// Ping reports whether the state can be reached: nil or Unavailable.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return failure(err)
	}
	if s.journal != nil {
		return s.journal.Healthy()
	}
	return nil
}

// Embedded reports whether the state lives in this process.
func (s *Store) Embedded() bool { return s.embedded != nil }

// Redis returns the client, for the audit shipper. It is closed with the Store.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

func deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// connect makes the client that the URL asks for. Its errors do not repeat the URL, which may hold
// a password.
func connect(raw string) (redis.UniversalClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "redis URL: not a URL")
	}
	q := u.Query()
	switch {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(raw)
		if err != nil {
			return nil, badURL(err, u)
		}
		tune(&o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.MaxRetries, &o.DialerRetries)
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(raw)
		if err != nil {
			return nil, badURL(err, u)
		}
		tune(&o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.MaxRetries, &o.DialerRetries)
		o.MaintNotificationsConfig = noMaintenance()
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, badURL(err, u)
	}
	if o.TLSConfig != nil {
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	tuneClient(o)
	return redis.NewClient(o), nil
}

func tuneClient(o *redis.Options) {
	tune(&o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout, &o.MaxRetries, &o.DialerRetries)
	o.MaintNotificationsConfig = noMaintenance()
}

// tune makes a client fail within callTimeout: its own defaults dial five times and wait for 5 s,
// and ignore a context's deadline. A value given in the URL stays. One retry, at once or nearly,
// serves a connection that died while it was idle; every script here may run twice.
func tune(ctxDeadline *bool, dial, read, write, pool *time.Duration, retries, dials *int) {
	*ctxDeadline = true
	for _, d := range []*time.Duration{dial, read, write, pool} {
		if *d == 0 {
			*d = callTimeout
		}
	}
	if *retries == 0 {
		*retries = 2
	}
	if *dials == 0 {
		*dials = 1
	}
}

// noMaintenance turns off a handshake of managed services that costs each connection a round trip.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func badURL(err error, u *url.URL) error {
	text := err.Error()
	if pw, ok := u.User.Password(); ok && pw != "" {
		text = strings.ReplaceAll(text, pw, "***")
	}
	return sandbox.Errorf(sandbox.Invalid, "redis URL: %s", strings.TrimPrefix(text, "redis: "))
}

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// quietClient stops the client from writing to standard error by itself. What fails comes back as
// an error, and is logged where it stops.
var quietClient = sync.OnceFunc(func() { redis.SetLogger(noLog{}) })

// failure maps an error of the client to its kind.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	switch {
	case errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Unavailable, err, "the request was given up before the state store answered")
	case errors.Is(err, redis.ErrClosed):
		return sandbox.Wrap(sandbox.Unavailable, err, "the server is stopping")
	case errors.As(err, &reply):
		// A READONLY, LOADING, OOM, MISCONF, NOAUTH, CLUSTERDOWN … is the state of Redis, not of the
		// request. An ERR is a mistake of ours.
		if !strings.HasPrefix(err.Error(), "ERR") && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			return sandbox.Wrap(sandbox.Unavailable, err, "the state store refuses to work now")
		}
		return sandbox.Wrap(sandbox.Internal, err, "the state store did not understand the request")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the state store (Redis) does not answer")
}

// isNil reports that a key or field is not there.
func isNil(err error) bool { return errors.Is(err, redis.Nil) }

func checkOwner(o sandbox.Owner) error {
	if err := sandbox.CheckOwnerName("tenant", o.Tenant); err != nil {
		return err
	}
	return sandbox.CheckOwnerName("user", o.User)
}

func checkThread(t sandbox.Thread) error {
	if err := checkOwner(t.Owner); err != nil {
		return err
	}
	return sandbox.CheckThreadID(t.ID)
}
