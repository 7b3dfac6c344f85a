package process

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Messages between Manager and supervisor travel over a socketpair: a length of four bytes, then
// JSON. Descriptors 0, 1 and 2 of the command, and StandbyFD of a standby, ride on the length of
// a run message; the descriptor of a forked process rides on an adopt message.

const (
	controlFD  = 3        // the supervisor's end
	maxRequest = 32 << 20 // of a run message: bounds what the supervisor allocates
	maxReport  = 64 << 10 // of a message of a supervisor
)

type messageKind string

const (
	msgRun       messageKind = "run"       // to the supervisor: start a command
	msgKill      messageKind = "kill"      // to the supervisor: end the whole tree
	msgAdopt     messageKind = "adopt"     // to the supervisor: what its command has forked is a run of its own
	msgSignal    messageKind = "signal"    // to the supervisor: signal every process of the tree, or the command's group
	msgStarted   messageKind = "started"   // from the supervisor
	msgFailed    messageKind = "failed"    // from the supervisor: nothing was started
	msgExit      messageKind = "exit"      // from the supervisor: the tree is gone, or Left processes of it stay
	msgSignalled messageKind = "signalled" // from the supervisor: a signal that said Tell was sent
	msgGone      messageKind = "gone"      // from the supervisor, after such an exit: they are gone
)

type message struct {
	Kind messageKind `json:"kind"`

	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	Cwd  string   `json:"cwd,omitempty"`
	// Terminal: descriptor 0 of the command is a terminal, which becomes its controlling one.
	Terminal bool `json:"terminal,omitempty"`

	// Leave: what the command started stays when the command itself has ended.
	Leave bool `json:"leave,omitempty"`
	Left  int  `json:"left,omitempty"` // msgExit: processes that stay, until msgGone

	// Group: msgSignal is for the process group of the command only.
	Group bool `json:"group,omitempty"`
	// Tell: msgSignal is answered with msgSignalled.
	Tell bool `json:"tell,omitempty"`

	Signal int    `json:"signal,omitempty"` // msgSignal: to send; msgExit: the signal that ended the command
	Serial uint64 `json:"serial,omitempty"` // of the run that a kill or signal is meant for

	PID    int    `json:"pid,omitempty"`
	Kept   int    `json:"kept,omitempty"` // msgAdopt: the command that forked it, which outlives the run
	Reason string `json:"reason,omitempty"`
	Code   int    `json:"code,omitempty"`
	CPU    int64  `json:"cpu_us,omitempty"`
	MaxRSS int64  `json:"max_rss,omitempty"` // bytes
}

func encodeMessage(m message, limit int) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > limit {
		return nil, fmt.Errorf("message of %d bytes, the limit is %d", len(body), limit)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.LittleEndian.PutUint32(frame, uint32(len(body)))
	return append(frame, body...), nil
}

// readBody reads the message behind a length that was read already.
func readBody(r io.Reader, length []byte, limit int) (message, error) {
	n := binary.LittleEndian.Uint32(length)
	if int64(n) > int64(limit) {
		return message{}, errors.New("message too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, err
	}
	return m, nil
}

func readMessage(r io.Reader, limit int) (message, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return message{}, err
	}
	return readBody(r, length[:], limit)
}
