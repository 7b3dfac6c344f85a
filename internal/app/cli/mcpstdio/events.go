package mcpstdio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// events passes on the data of each server-sent event, and returns the id of the last one.
func events(body io.Reader, take func(data []byte)) (last string, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxAnswer)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if len(data) > 0 {
				take(data)
			}
			data = nil
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			last = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			if data = append(data, value...); len(data) > maxAnswer {
				return last, fmt.Errorf("an event has more than %d bytes", maxAnswer)
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return last, fmt.Errorf("an event has more than %d bytes", maxAnswer)
	} else if err != nil {
		return last, fmt.Errorf("the stream broke off: %w", err)
	}
	return last, nil
}
