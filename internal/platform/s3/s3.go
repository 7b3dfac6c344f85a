// Package s3 fetches archives of skills from S3 and from what speaks as it does (s3://bucket/key). It reads single
// objects, and stores those of the audit archive and of snapshots (objects.go); nothing else. A server lets users fetch from the buckets of a list only: it reads with
// credentials of its own, which are not theirs.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

// Options say where the objects are. The zero value is Amazon's own S3, read without credentials.
type Options struct {
	Endpoint  string // "https://s3.example.com[:port]"; "" = Amazon's, of the region
	Region    string // "" = us-east-1
	AccessKey string // "" = no credentials
	SecretKey string
	Session   string // token of credentials that expire
	PathStyle bool   // https://endpoint/bucket/key, not https://bucket.endpoint/key
	// Buckets are the ones that may be read: "bucket", or "bucket/folder" for all below. nil: any.
	Buckets []string
	// Addresses may be connected to besides the public internet: a store of one's own network.
	Addresses []netip.Prefix
	// MaxBytes bounds one object.
	MaxBytes int64
}

// Client fetches objects. Make one with New.
type Client struct {
	o         Options
	client    *minio.Client
	transport *http.Transport
}

const (
	defaultRegion = "us-east-1"
	headerWait    = 30 * time.Second // for the beginning of an answer
	idleWait      = 30 * time.Second // of a connection that is kept
)

// New makes a client. It connects to nothing yet. Invalid: an endpoint that is none, or a list of
// buckets that cannot be right.
func New(o Options) (*Client, error) {
	host, secure, err := endpoint(o)
	if err != nil {
		return nil, err
	}
	for _, b := range o.Buckets {
		bucket, prefix, _ := strings.Cut(b, "/")
		if !bucketName.MatchString(bucket) || prefix != "" && !plainKey(strings.TrimSuffix(prefix, "/")) {
			return nil, sandbox.Errorf(sandbox.Invalid, "s3: %.100q is not a bucket or bucket/folder", b)
		}
	}
	if o.Region == "" {
		o.Region = defaultRegion
	}
	// No proxy of the environment: it would connect in our place, to what we refuse.
	tr := &http.Transport{
		DialContext: egress.PublicDialer(o.Addresses).DialContext, TLSHandshakeTimeout: headerWait,
		ResponseHeaderTimeout: headerWait, IdleConnTimeout: idleWait, MaxIdleConns: 16, MaxIdleConnsPerHost: 8, DisableCompression: true,
	}
	creds := credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	if o.AccessKey != "" {
		creds = credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.Session)
	}
	style := minio.BucketLookupDNS
	if o.PathStyle {
		style = minio.BucketLookupPath
	}
	client, err := minio.New(host, &minio.Options{Creds: creds, Secure: secure, Region: o.Region, Transport: tr, BucketLookup: style, MaxRetries: 2})
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "s3: the endpoint cannot be used")
	}
	return &Client{o, client, tr}, nil
}

// endpoint returns the host of the configured address.
func endpoint(o Options) (host string, secure bool, err error) {
	if o.Endpoint == "" {
		if o.Region == "" || o.Region == defaultRegion {
			return "s3.amazonaws.com", true, nil
		}
		return "s3." + o.Region + ".amazonaws.com", true, nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", false, sandbox.Errorf(sandbox.Invalid, "s3: the endpoint is to be https://host[:port]")
	}
	return u.Host, u.Scheme == "https", nil
}

// Close releases kept connections.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Parse returns the bucket and the key of an address s3://bucket/key. Invalid: not such an address, or a key with parts
// that are empty, "." or "..", which some stores would resolve.
func Parse(address string) (bucket, key string, err error) {
	rest, ok := strings.CutPrefix(address, "s3://")
	if !ok {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%.200q is not s3://bucket/key", address)
	}
	bucket, key, _ = strings.Cut(rest, "/")
	if !bucketName.MatchString(bucket) || strings.Contains(bucket, "..") || !plainKey(key) {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%.200q is not s3://bucket/key, with a bucket of a-z, 0-9, - and . and a key without empty parts, . and ..", address)
	}
	return bucket, key, nil
}

func plainKey(key string) bool {
	if key == "" || len(key) > 1024 || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) || strings.Contains(key, `\`) {
		return false
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func (c *Client) allowed(bucket, key string) bool {
	if c.o.Buckets == nil {
		return true
	}
	for _, b := range c.o.Buckets {
		name, prefix, _ := strings.Cut(b, "/")
		prefix = strings.TrimSuffix(prefix, "/")
		if name == bucket && (prefix == "" || strings.HasPrefix(key, prefix+"/")) {
			return true
		}
	}
	return false
}

// Fetch returns the object at s3://bucket/key; the caller closes it. It ends with ctx. Errors: Invalid (no
// such address), NotFound, QuotaExceeded (larger than MaxBytes), Unavailable. Also Forbidden: a bucket that
// is not on the list, an address that is not public, or what the store refuses.
func (c *Client) Fetch(ctx context.Context, address string) (io.ReadCloser, error) {
	bucket, key, err := Parse(address)
	if err != nil {
		return nil, err
	}
	if !c.allowed(bucket, key) {
		return nil, sandbox.Errorf(sandbox.Forbidden, "s3://%s/%.200s is not in a bucket that this server may read (s3.buckets)", bucket, key)
	}
	o, err := c.client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, failed(ctx, err, bucket, key)
	}
	info, err := o.Stat() // the request is sent now
	if err == nil && c.o.MaxBytes > 0 && info.Size > c.o.MaxBytes {
		err = sandbox.Errorf(sandbox.QuotaExceeded, "s3://%s/%.200s has %d bytes, at most %d", bucket, key, info.Size, c.o.MaxBytes)
	}
	if err != nil {
		_ = o.Close()
		return nil, failed(ctx, err, bucket, key)
	}
	return &object{o, ctx, bucket, key}, nil
}

// partBytes is how much of an object is stored with one request, and held in memory for it.
const partBytes = 16 << 20

// Put stores an object of size bytes at s3://bucket/key, in place of what is there. A store shows it as a whole or not at
// all. Errors: as Fetch, and what reading from says.
func (c *Client) Put(ctx context.Context, address string, from io.Reader, size int64) error {
	bucket, key, err := Parse(address)
	if err != nil {
		return err
	}
	if !c.allowed(bucket, key) {
		return sandbox.Errorf(sandbox.Forbidden, "s3://%s/%.200s is not in a bucket that this server may use (s3.buckets)", bucket, key)
	}
	// PutObject would read all of a reader that can seek ahead, several parts at once.
	_, err = c.client.PutObject(ctx, bucket, key, struct{ io.Reader }{from}, size, minio.PutObjectOptions{PartSize: partBytes, NumThreads: 1})
	if err != nil {
		return failed(ctx, err, bucket, key)
	}
	return nil
}

// object sets the kind of errors of reading.
type object struct {
	*minio.Object
	ctx         context.Context
	bucket, key string
}

// Read reads as io.Reader says; errors have kinds.
func (o *object) Read(p []byte) (int, error) {
	n, err := o.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = failed(o.ctx, err, o.bucket, o.key)
	}
	return n, err
}

// failed maps an error to its kind. What the store says stays hidden: it may name its own insides.
func failed(ctx context.Context, err error, bucket, key string) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	where := fmt.Sprintf("s3://%s/%.200s", bucket, key)
	res := minio.ToErrorResponse(err)
	var network net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.Timeout, err, "%s: the store took too long", where)
	case ctx.Err() != nil:
		return ctx.Err()
	case egress.Refused(err):
		return sandbox.Wrap(sandbox.Forbidden, err, "%s: the store has an address that is not on the public internet; an administrator may allow it (s3.addresses)", where)
	case res.StatusCode == http.StatusPreconditionFailed || res.Code == "ConditionalRequestConflict":
		return sandbox.Wrap(sandbox.Conflict, err, "%s: it is not what it was", where)
	case res.Code == "NoSuchKey" || res.Code == "NoSuchBucket" || res.StatusCode == http.StatusNotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "%s: there is no such object", where)
	case res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized:
		return sandbox.Wrap(sandbox.Forbidden, err, "%s: the store refuses this server's credentials", where)
	case errors.As(err, &network) && network.Timeout():
		return sandbox.Wrap(sandbox.Timeout, err, "%s: the store took too long", where)
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "%s: the store does not answer as S3 does", where)
}
