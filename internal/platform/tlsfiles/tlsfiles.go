package tlsfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/every"
)

const (
	// lookEvery is how often the files are looked at. They are read, not only asked for their times: a mounted
	// secret changes by a link, and some file systems tell times by the second.
	lookEvery = 5 * time.Second
	// maxFileBytes bounds a file.
	maxFileBytes = 1 << 20
)

// Files says where everything is. ClientCA may be "": clients need no certificate.
type Files struct {
	Cert, Key, ClientCA string
}

// Options of Open.
type Options struct {
	Log *slog.Logger     // nil = none
	Now func() time.Time // replaces time.Now in tests
}

// Server is the TLS of a listener. It is safe for concurrent use.
type Server struct {
	files Files
	o     Options

	mu     sync.Mutex
	now    *tls.Config
	until  time.Time // the certificate's end
	sum    [sha256.Size]byte
	failed error // of the files as they are now; nil: they are in use
}

// Open reads the files. An error names the wrong one.
func Open(f Files, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{files: f, o: o}
	read, sum, err := s.read()
	if err != nil {
		return nil, err
	}
	s.sum = sum
	if s.now, s.until, err = s.load(read); err != nil {
		return nil, err
	}
	return s, nil
}

// Config is for a listener: every connection asks for what is in force.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.now, nil
		},
	}
}

func protocols() []string { return []string{"h2", "http/1.1"} }

// State says until when the certificate is good, and why the files as they are now are not in use, if so.
func (s *Server) State() (until time.Time, refused error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until, s.failed
}

// Watch looks at the files until ctx ends.
func (s *Server) Watch(ctx context.Context) {
	for range every.Tick(ctx, lookEvery) {
		s.Look()
	}
}

// Look reads the files, and takes them when they are others than before, and good. A mistake is said once.
func (s *Server) Look() {
	files, sum, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && sum == s.sum { // the ones that are in use
		s.failed = nil
		return
	}
	var conf *tls.Config
	var until time.Time
	if err == nil {
		conf, until, err = s.load(files)
		if err == nil && !until.After(s.o.Now()) && until.Before(s.until) {
			err = fmt.Errorf("the certificate in %s expired at %s", s.files.Cert, until.UTC().Format(time.RFC3339))
		}
	}
	if err != nil {
		if s.failed == nil || s.failed.Error() != err.Error() {
			s.o.Log.Error("TLS: the files changed and cannot be used; what was there goes on", "error", err, "until", s.until)
		}
		s.failed = err
		return
	}
	s.now, s.until, s.sum, s.failed = conf, until, sum, nil
	s.o.Log.Info("TLS: new files are in use", "until", until)
}

// contents are the files as they were read.
type contents struct{ cert, key, ca []byte }

func (s *Server) read() (c contents, sum [sha256.Size]byte, err error) {
	for _, f := range []struct {
		path string
		into *[]byte
	}{{s.files.Cert, &c.cert}, {s.files.Key, &c.key}, {s.files.ClientCA, &c.ca}} {
		if f.path == "" {
			continue
		}
		if *f.into, err = readFile(f.path); err != nil {
			return c, sum, err
		}
	}
	h := sha256.New()
	for _, b := range [][]byte{c.cert, c.key, c.ca} {
		part := sha256.Sum256(b)
		h.Write(part[:])
	}
	return c, [sha256.Size]byte(h.Sum(nil)), nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxFileBytes:
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFileBytes)
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, fmt.Errorf("%s: is empty", path)
	}
	return raw, nil
}

// load makes a config of the files.
func (s *Server) load(c contents) (*tls.Config, time.Time, error) {
	pair, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s and %s: %w", s.files.Cert, s.files.Key, err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols(), Certificates: []tls.Certificate{pair}}
	if s.files.ClientCA != "" {
		conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !conf.ClientCAs.AppendCertsFromPEM(c.ca) {
			return nil, time.Time{}, fmt.Errorf("%s: holds no certificate", s.files.ClientCA)
		}
	}
	if pair.Leaf == nil {
		return nil, time.Time{}, errors.New("the certificate was not parsed")
	}
	return conf, pair.Leaf.NotAfter, nil
}
