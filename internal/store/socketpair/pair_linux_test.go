package socketpair

import (
	"bytes"
	"io"
	"testing"
	"time"
)

// TestWriteDoesNotWait: a server that answers before the client reads goes on reading, and the client gets all of it in order.
func TestWriteDoesNotWait(t *testing.T) {
	t.Parallel()
	client, server, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const parts, size = 200, 64 << 10
	end := time.Now().Add(20 * time.Second)
	if err := client.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		part := make([]byte, size)
		for range parts {
			if _, err := io.ReadFull(server, part); err != nil {
				served <- err
				return
			}
			if n, err := server.Write(part); err != nil || n != size {
				served <- err
				return
			}
		}
		served <- nil
	}()
	var sent bytes.Buffer
	for i := range parts {
		part := bytes.Repeat([]byte{byte(i)}, size)
		sent.Write(part)
		if _, err := client.Write(part); err != nil { // before anything is read
			t.Fatalf("part %d: %v", i, err)
		}
	}
	got := make([]byte, parts*size)
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("the answers differ: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	// What was kept is gone: the next write is as fast as the first.
	if _, err := server.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, got[:3]); err != nil || string(got[:3]) != "end" {
		t.Errorf("%q, %v", got[:3], err)
	}
}

// TestClosed: when the client is gone, the server is told, and no goroutine stays.
func TestClosed(t *testing.T) {
	t.Parallel()
	client, server, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err = server.Write([]byte("x")); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil {
		t.Error("a write to nobody succeeds")
	}
	s := server.(*serverEnd)
	for range 1000 {
		s.mu.Lock()
		flushing, kept := s.flushing, len(s.kept)
		s.mu.Unlock()
		if !flushing && kept == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("what was kept stays")
}
