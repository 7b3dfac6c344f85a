package inprocess

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// source answers GET in one way after the other, and keeps what PUT brings.
type source struct {
	read    func(w http.ResponseWriter)
	written []byte
	wrong   error // of the body of PUT
	puts    int
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.read(w)
		return
	}
	s.puts++
	if s.written, s.wrong = io.ReadAll(r.Body); s.wrong != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":"invalid","detail":"the body ended too early"}`)
	}
}

// TestCopy: what is not whole is not taken for a file, and what is not there is not made.
func TestCopy(t *testing.T) {
	t.Parallel()
	part := make([]byte, 1<<20)
	for name, c := range map[string]struct {
		read           func(w http.ResponseWriter)
		refused, fails bool
		puts, want     int
	}{
		"whole": {read: func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", strconv.Itoa(100<<20)) // more than MaxAnswer
			for range 100 {
				_, _ = w.Write(part)
			}
		}, puts: 1, want: 100 << 20},
		"empty": {read: func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, puts: 1},
		"mute":  {read: func(http.ResponseWriter) {}, puts: 1},
		"not there": {read: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"not_found","detail":"no"}`)
		}, refused: true},
		"short": {read: func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "abc")
		}, fails: true, puts: 1},
		"broken off": {read: func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "abc")
			panic(http.ErrAbortHandler)
		}, fails: true, puts: 1},
		"panic": {read: func(http.ResponseWriter) { panic("at once") }, refused: true},
	} {
		s := &source{read: c.read}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", nil)
		refused, err := Caller{API: s, W: httptest.NewRecorder(), R: r}.Copy(Request{Method: http.MethodGet, Path: "/from"}, Request{Method: http.MethodPut, Path: "/to"})
		if (refused != nil) != c.refused || (err != nil) != c.fails || s.puts != c.puts || s.wrong == nil && len(s.written) != c.want {
			t.Errorf("%s: refused %v, error %v, %d puts of %d bytes (%v)", name, refused, err, s.puts, len(s.written), s.wrong)
		}
	}
}

// TestCopyStopped: a request that reads no more ends the one that it is fed by.
func TestCopyStopped(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, `{"code":"quota_exceeded","detail":"full"}`)
			return
		}
		for {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				ended <- err
				return
			}
		}
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", nil)
	refused, err := Caller{API: api, W: httptest.NewRecorder(), R: r}.Copy(Request{Method: http.MethodGet, Path: "/from"}, Request{Method: http.MethodPut, Path: "/to"})
	var full *Refusal
	if refused != nil || !errors.As(err, &full) || full.Detail != "full" || !errors.Is(<-ended, errStopped) {
		t.Errorf("%v, %v", refused, err)
	}
}
