package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// looks remember when the heads of snapshots were last read.
type looks struct{ *Snapshots }

// sealer encrypts and decrypts.
type sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Open(purpose string, sealed []byte) ([]byte, error)
	Stale(purpose string, sealed []byte) bool
}

// meter is told what was done.
type meter interface {
	// Kept: a snapshot was written, or could not be; bytes were sent for it.
	Kept(err error, d time.Duration, bytes int64)
	// Restored: a thread was.
	Restored(err error, d time.Duration)
}

// Options say where snapshots are. All but Sealer and Meter are needed.
type Options struct {
	Objects Objects
	Dir     string // for what this data folder knows of them
	Holder  string // id of the data folder
	Sealer  sealer // opens the store's key; nil: what is encrypted cannot be read
	Encrypt bool   // what is written
	Meter   meter
	Log     *slog.Logger
}

// Snapshots keeps the files of threads. Its methods may be called concurrently, also by other processes of the data folder.
type Snapshots struct {
	o     Options
	zip   *zstd.Encoder
	unzip *zstd.Decoder
	room  chan struct{} // a token for each pack under way
	large chan struct{} // and for each thread with many files that is looked at

	mu          sync.Mutex
	cache       map[sandbox.Thread]cached
	cachedBytes int
	key         []byte                       // the store's; nil: it was not read yet
	looked      map[sandbox.Thread]time.Time // when the head was last looked at
}

// lookAgain is how long a thread that nothing runs in here is taken for what it was: so long another server's changes may
// be unseen by reads.
const lookAgain = 5 * time.Second

// Open makes sure that the store is there and holds to conditions.
func Open(ctx context.Context, o Options) (*Snapshots, error) {
	if err := Check(ctx, o.Objects, o.Holder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	zip, unzip, err := newZip()
	if err != nil {
		return nil, err
	}
	s := &Snapshots{
		o: o, zip: zip, unzip: unzip, room: make(chan struct{}, packsAtOnce), large: make(chan struct{}, largeAtOnce),
		cache: map[sandbox.Thread]cached{}, looked: map[sandbox.Thread]time.Time{},
	}
	if o.Encrypt {
		if err := (keyring{s}).makeKey(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close ends what reading and writing need. No other method is called after it.
func (s *Snapshots) Close() error {
	s.unzip.Close()
	return s.zip.Close()
}

// A list of manyEntries takes some megabytes of memory, and the longest some hundred: few of those are in memory at once. Code
// chooses how long paths are, so a list of as many bytes is one, too.
const (
	manyEntries = 25_000
	manyBytes   = 8 << 20
	largeAtOnce = 4
)

// largeThread waits for its turn when it has to, once.
type largeThread struct {
	ctx   context.Context
	turns chan struct{}
	has   bool
}

func (s *Snapshots) largeThread(ctx context.Context) *largeThread {
	return &largeThread{ctx: ctx, turns: s.large}
}

func (l *largeThread) wait() error {
	if l.has {
		return nil
	}
	select {
	case l.turns <- struct{}{}:
		l.has = true
		return nil
	case <-l.ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, l.ctx.Err(), "too many threads with many files are kept or restored at the same time; try again")
	}
}

func (l *largeThread) done() {
	if l.has {
		<-l.turns
	}
}

// place is where the objects of a thread are. The names were checked when they came in.
func place(t sandbox.Thread) string { return t.Tenant + "/" + t.User + "/" + t.ID }

func headName(t sandbox.Thread) string { return place(t) + "/head" }

// head returns what is kept of a thread, and its version; nil: nothing is.
func (s *Snapshots) head(ctx context.Context, t sandbox.Thread) (*head, string, error) {
	text, version, err := s.o.Objects.Read(ctx, headName(t), maxHeadBytes)
	if errors.Is(err, sandbox.NotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	h, err := readHead(text)
	if err != nil {
		return nil, "", broken(s.o.Objects.Name(), headName(t), err)
	}
	return h, version, nil
}

// headText is a head as it is stored.
func headText(h *head) ([]byte, error) {
	text, err := json.Marshal(h)
	if err == nil && len(text) > maxHeadBytes {
		err = sandbox.Errorf(sandbox.QuotaExceeded, "the list of the thread's files is too long to be kept")
	}
	return text, err
}

// writeHead puts a head in the place of a version.
func (s *Snapshots) writeHead(ctx context.Context, t sandbox.Thread, h *head, version string) (string, error) {
	text, err := headText(h)
	if err != nil {
		return "", err
	}
	return s.o.Objects.Replace(ctx, headName(t), append(text, '\n'), version)
}

// lookedAt notes that a thread's head was looked at now.
func (s looks) lookedAt(t sandbox.Thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.looked) > 10_000 {
		clear(s.looked)
	}
	s.looked[t] = time.Now()
}

func (s looks) forgetLook(t sandbox.Thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.looked, t)
}

func (s looks) justLooked(t sandbox.Thread) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.looked[t]) < lookAgain
}

// onDisk reports whether the thread has a folder here.
func onDisk(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, folders[0]))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return true, nil
}

func (s looks) pendingFile(t sandbox.Thread) string {
	return filepath.Join(indexes(s).state(t), "late")
}

// MarkPending notes that a thread has changes which are still to be saved. The note
// survives the end of this process, but is not synced to the disk.
func (s *Snapshots) MarkPending(t sandbox.Thread) error {
	if err := os.MkdirAll((indexes{s}).state(t), 0o700); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
	}
	if err := os.WriteFile((looks{s}).pendingFile(t), []byte("\n"), 0o600); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
	}
	return nil
}

// Pending returns the threads that were marked as pending and were not saved since.
func (s *Snapshots) Pending() ([]sandbox.Thread, error) {
	marks, err := filepath.Glob(filepath.Join(s.o.Dir, "*", "*", "*", "late"))
	var all []sandbox.Thread
	for _, path := range marks {
		rel, e := filepath.Rel(s.o.Dir, path)
		if parts := strings.Split(rel, string(filepath.Separator)); e == nil && len(parts) == 4 {
			all = append(all, sandbox.Thread{Owner: sandbox.Owner{Tenant: parts[0], User: parts[1]}, ID: parts[2]})
		}
	}
	return all, err
}
