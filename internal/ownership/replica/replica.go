// Package replica tells the server processes of one data folder apart. Each has an id of its own, made when
// it starts. It also has a numbered slot for what only it may write, and a socket on which the others reach
// it. A replica that others reach over a network announces its address besides (package peer).
//
// A slot is a folder with a lock that the kernel takes away when the process ends, however it does: so
// that a dead replica is known at once, and a replica that merely does not answer is never taken for dead. What
// the lock cannot tell, that a process was stopped for a while, is told by leases (package store).
package replica

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/ownedsocket"
)

const (
	// MaxSlots bounds how many processes share a data folder.
	MaxSlots = 64

	lockName   = "lock"
	infoName   = "replica.json"
	socketName = "api.sock"
	maxInfo    = 4 << 10
)

// ErrFull says that MaxSlots processes have the folder.
var ErrFull = fmt.Errorf("%d servers use this data folder, the most there may be", MaxSlots)

// ErrGone says that there is no replica of that id any more.
var ErrGone = errors.New("the replica has ended")

// Info is what a replica says of itself.
type Info struct {
	ID      string    `json:"id"`
	Slot    int       `json:"slot"` // 1 to MaxSlots
	PID     int       `json:"pid"`
	Address string    `json:"address,omitempty"` // of its API, once it serves
	Peer    string    `json:"peer,omitempty"`    // ip:port for replicas of other machines; "": it has only the socket
	Started time.Time `json:"started"`
}

// Replica is this process. Make one with Join. Its methods may be called concurrently, but for SetAddress and
// Announce.
type Replica struct {
	dir    string // of all slots
	info   Info
	lock   *os.File
	former Info // who had the slot before; zero: none, or it is buried
}

// Join takes the first slot of dir that no living process has. The lock ends with the process, or with Leave.
func Join(dir string) (*Replica, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	r := &Replica{dir: dir, info: Info{ID: "r" + hex.EncodeToString(id[:]), PID: os.Getpid(), Started: time.Now().UTC()}}
	for slot := 1; slot <= MaxSlots; slot++ {
		lock, err := takeSlot(dir, slot)
		if err != nil {
			return nil, fmt.Errorf("replica: %w", err)
		}
		if lock == nil {
			continue
		}
		r.lock, r.info.Slot = lock, slot
		if former, err := readInfo(slotDir(dir, slot)); err == nil {
			former.Slot, r.former = slot, former
		}
		if err := r.write(); err != nil {
			return nil, errors.Join(fmt.Errorf("replica: %w", err), lock.Close())
		}
		return r, nil
	}
	return nil, ErrFull
}

// takeSlot returns the lock of a slot, or nil when a process has it.
func takeSlot(dir string, slot int) (*os.File, error) {
	at := slotDir(dir, slot)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(at, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// Of the open file, not of the process: another part of this process that opens it does not end it.
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
	}
	return f, nil
}

func slotDir(dir string, slot int) string { return filepath.Join(dir, strconv.Itoa(slot)) }

// ID names this process; no other one has or had it.
func (r *Replica) ID() string { return r.info.ID }

// Slot is the number of the slot, from 1. Another process has it after this one.
func (r *Replica) Slot() int { return r.info.Slot }

// Former is the replica that had this one's slot before, the zero Info when none did. It has ended, if locks work
// between the machines that share the folder.
func (r *Replica) Former() Info { return r.former }

// Announce tells the others where they reach this replica over a network.
func (r *Replica) Announce(addr string) error {
	r.info.Peer = addr
	return r.write()
}

// SetAddress tells the others where this replica's API is.
func (r *Replica) SetAddress(addr string) error {
	r.info.Address = addr
	return r.write()
}

// Leave releases the slot. The others see this replica as ended from now on.
func (r *Replica) Leave() error { return r.lock.Close() }

func (r *Replica) write() error {
	text, err := json.Marshal(r.info)
	if err != nil {
		return err
	}
	return lockedfile.Swap(filepath.Join(slotDir(r.dir, r.info.Slot), infoName), text, 0o600)
}

// Alive reports whether a replica's process is there, this one included. A stopped process is there.
func (r *Replica) Alive(id string) bool {
	if id == r.info.ID {
		return true
	}
	_, err := r.Find(id)
	return err == nil
}

// Find returns a living replica; ErrGone when it is none.
func (r *Replica) Find(id string) (Info, error) {
	all, err := read(r.dir)
	if err != nil {
		return Info{}, err
	}
	for _, s := range all {
		if s.ID == id && s.alive {
			return s.Info, nil
		}
	}
	return Info{}, ErrGone
}

// All are the replicas that live, this one among them, by slot.
func (r *Replica) All() ([]Info, error) { return List(r.dir) }

// Peers are the other replicas that live, by slot.
func (r *Replica) Peers() ([]Info, error) {
	all, err := r.All()
	if err != nil {
		return nil, err
	}
	peers := all[:0]
	for _, i := range all {
		if i.ID != r.info.ID {
			peers = append(peers, i)
		}
	}
	return peers, nil
}

// List returns the replicas of a folder that live, by slot.
func List(dir string) ([]Info, error) {
	all, err := read(dir)
	if err != nil {
		return nil, err
	}
	living := []Info{}
	for _, s := range all {
		if s.alive {
			living = append(living, s.Info)
		}
	}
	return living, nil
}

// Unsettled reports whether there is a replica that ended and is not buried yet.
func (r *Replica) Unsettled() bool {
	all, err := read(r.dir)
	return err != nil || slices.ContainsFunc(all, func(s slot) bool { return !s.alive })
}

// Settle calls settle for each replica that ended and whose slot no process has taken since, with the slot
// held: no other process begins in it, and no other buries it, meanwhile. When settle succeeds the
// replica is forgotten; else it is there for the next call.
func (r *Replica) Settle(settle func(dead Info) error) error {
	all, err := read(r.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		if !s.alive {
			errs = append(errs, r.settle(s.Slot, settle))
		}
	}
	return errors.Join(errs...)
}

func (r *Replica) settle(slot int, settle func(Info) error) error {
	lock, err := takeSlot(r.dir, slot)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // closing is what unlocks
	dead, err := readInfo(slotDir(r.dir, slot))
	if errors.Is(err, fs.ErrNotExist) { // another one buried it meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	dead.Slot = slot
	if err := settle(dead); err != nil {
		return err
	}
	return os.Remove(filepath.Join(slotDir(r.dir, slot), infoName))
}

// Listen opens the socket on which the others reach this replica: only root may.
func (r *Replica) Listen() (net.Listener, error) {
	return ownedsocket.Listen(slotDir(r.dir, r.info.Slot), socketName, 0)
}

// Dial connects to a replica's socket. ErrGone: it has ended.
func (r *Replica) Dial(ctx context.Context, id string) (net.Conn, error) {
	at, err := r.Find(id)
	if err != nil {
		return nil, err
	}
	// By a descriptor: the path may be longer than a socket's address.
	dir, err := os.Open(slotDir(r.dir, at.Slot))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it was only looked at
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName))
}

// slot is a slot that has or had an owner.
type slot struct {
	Info
	alive bool
}

func read(dir string) ([]slot, error) {
	var all []slot
	for n := 1; n <= MaxSlots; n++ {
		at := slotDir(dir, n)
		info, err := readInfo(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("replica: slot %d: %w", n, err)
		}
		info.Slot = n
		held, err := held(filepath.Join(at, lockName))
		if err != nil {
			return nil, fmt.Errorf("replica: slot %d: %w", n, err)
		}
		all = append(all, slot{info, held})
	}
	return all, nil
}

func readInfo(dir string) (Info, error) {
	text, err := os.ReadFile(filepath.Join(dir, infoName))
	if err != nil {
		return Info{}, err
	}
	var i Info
	if len(text) > maxInfo {
		return i, errors.New("the file is none of a replica")
	}
	return i, json.Unmarshal(text, &i)
}

// held asks for a lock without taking it, so that the question keeps no process from it.
func held(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // it was only asked
	whole := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole); err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	return whole.Type != unix.F_UNLCK, nil
}
