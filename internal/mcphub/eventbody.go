package mcphub

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// eventBody is the body of an answer that is a stream of server-sent events. It passes events on as
// they come, one at a time, and looks at the messages in them on the way (see rpcCall.see).
type eventBody struct {
	body    io.ReadCloser
	limit   int // bytes of one event
	call    rpcCall
	capture *capture

	in  *bufio.Reader
	out bytes.Buffer // of events that nobody has read yet
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
		b.err = b.event()
	}
	return b.out.Read(p)
}

// Close implements io.Closer.
func (b *eventBody) Close() error { return b.body.Close() }

// event reads one event and writes it to out. Lines of data are joined, as the format says.
func (b *eventBody) event() error {
	var other bytes.Buffer
	var data []byte
	var hasData, large bool
	for {
		line, tooLong, err := b.line(b.limit - len(data))
		text := strings.TrimRight(string(line), "\r\n")
		rest, isData := strings.CutPrefix(text, "data:")
		switch {
		case tooLong:
			large = true
		case isData:
			if hasData {
				data = append(data, '\n')
			}
			data, hasData = append(data, strings.TrimPrefix(rest, " ")...), true
		case text != "" && other.Len() < slack:
			other.WriteString(text + "\n")
		}
		if text == "" && !tooLong || err != nil {
			b.emit(other.Bytes(), data, hasData, large)
			return err
		}
	}
}

// line reads a line. One of more than most bytes is skipped to its end.
func (b *eventBody) line(most int) (line []byte, tooLong bool, err error) {
	for {
		part, err := b.in.ReadSlice('\n')
		if len(line)+len(part) > max(most, 0)+slack {
			line, tooLong = nil, true
		}
		if !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

func (b *eventBody) emit(other, data []byte, hasData, large bool) {
	b.out.Reset()
	b.out.Write(other)
	if large {
		if b.capture != nil {
			b.capture.setTooLarge()
		}
		data, hasData = nil, b.call.id != nil
		if hasData {
			data = tooLargeAnswer(b.call.id, b.limit)
		}
	} else if len(data) > 0 {
		data = b.call.see(data, b.limit, b.capture)
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
