package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// eventBody is the body of an answer that is a stream of server-sent events. It passes events on as
// they come, one at a time, and shows the messages in them to traffic on the way. An event that is too
// large is skipped to its end and fails its call alone.
type eventBody struct {
	body    io.ReadCloser
	traffic *Traffic
	id      json.RawMessage // of the request that the stream answers, or nil
	by      *Capture        // of that request, or nil

	in  *bufio.Reader
	out bytes.Buffer // of events that were not read yet
	err error
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	if b.in == nil {
		b.in = bufio.NewReaderSize(b.body, 32<<10)
	}
	for b.out.Len() == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.err = b.next()
	}
	return b.out.Read(p)
}

// Close implements io.Closer.
func (b *eventBody) Close() error { return b.body.Close() }

// event is what was read of one event.
type event struct {
	other   bytes.Buffer // the lines that are not data
	data    []byte       // lines of data are joined, as the format says
	hasData bool
	large   *idScanner // looks for the id once the data is too large to keep
}

var dataField = []byte("data:")

// next reads one event and writes it to out.
func (b *eventBody) next() error {
	var e event
	for {
		part, err := b.in.ReadSlice('\n')
		more := errors.Is(err, bufio.ErrBufferFull)
		line := bytes.TrimRight(part, "\r\n")
		rest, isData := bytes.CutPrefix(line, dataField)
		switch {
		case isData:
			if e.hasData {
				e.add([]byte{'\n'}, b.traffic.limit)
			}
			e.hasData = true
			e.add(bytes.TrimPrefix(rest, []byte(" ")), b.traffic.limit)
		default:
			e.keep(line, !more)
		}
		for more { // the rest of a long line
			part, err = b.in.ReadSlice('\n')
			more = errors.Is(err, bufio.ErrBufferFull)
			if rest := bytes.TrimRight(part, "\r\n"); isData {
				e.add(rest, b.traffic.limit)
			} else {
				e.keep(rest, !more)
			}
			line = part // a long line is not an empty one
		}
		if len(line) == 0 || err != nil {
			b.emit(&e)
			return err
		}
	}
}

// Add takes in a part of the data.
func (e *event) add(part []byte, limit int) {
	if e.large == nil && len(e.data)+len(part) > limit {
		e.large = &idScanner{}
		e.large.scan(e.data)
		e.data = nil
	}
	if e.large != nil {
		e.large.scan(part)
		return
	}
	e.data = append(e.data, part...)
}

// keep takes in a part of a line that is not data.
func (e *event) keep(part []byte, end bool) {
	if e.other.Len()+len(part) <= Slack {
		e.other.Write(part)
	}
	if n := e.other.Len(); end && n > 0 && e.other.Bytes()[n-1] != '\n' {
		e.other.WriteByte('\n')
	}
}

func (b *eventBody) emit(e *event) {
	b.out.Reset()
	b.out.Write(e.other.Bytes())
	data, hasData := e.data, e.hasData
	if e.large != nil {
		id := e.large.id
		if id == nil {
			id = b.id
		}
		if hasData = id != nil; hasData {
			data = b.traffic.skipped(id)
		}
	} else if len(data) > 0 {
		data = b.traffic.text(data, b.by)
	}
	if hasData {
		for part := range bytes.SplitSeq(data, []byte("\n")) {
			b.out.WriteString("data: ")
			b.out.Write(part)
			b.out.WriteByte('\n')
		}
	}
	if b.out.Len() > 0 {
		b.out.WriteByte('\n')
	}
}
