package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Small objects that are replaced, listed and removed: those of snapshots. Errors as Fetch.

// at is Parse for an address that this client may use.
func (c *Client) at(address string) (bucket, key string, err error) {
	bucket, key, err = Parse(address)
	if err == nil && !c.allowed(bucket, key) {
		err = sandbox.Errorf(sandbox.Forbidden, "s3://%s/%.200s is not in a bucket that this server may use (s3.buckets)", bucket, key)
	}
	return bucket, key, err
}

// Read returns an object of at most most bytes, and its version. QuotaExceeded: it is larger.
func (c *Client) Read(ctx context.Context, address string, most int64) (data []byte, version string, err error) {
	bucket, key, err := c.at(address)
	if err != nil {
		return nil, "", err
	}
	o, err := c.client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", failed(ctx, err, bucket, key)
	}
	defer o.Close()
	info, err := o.Stat() // the request is sent now
	if err != nil {
		return nil, "", failed(ctx, err, bucket, key)
	}
	if info.Size > most {
		return nil, "", sandbox.Errorf(sandbox.QuotaExceeded, "s3://%s/%.200s has %d bytes, at most %d", bucket, key, info.Size, most)
	}
	data = make([]byte, info.Size)
	if _, err := io.ReadFull(o, data); err != nil {
		return nil, "", failed(ctx, err, bucket, key)
	}
	return data, info.ETag, nil
}

// Replace stores an object in the place of the named version, or where there is none when version is "". It
// returns the new version. Conflict: the object is another one by now. A store that does not know conditions
// stores it all the same.
func (c *Client) Replace(ctx context.Context, address string, data []byte, version string) (string, error) {
	bucket, key, err := c.at(address)
	if err != nil {
		return "", err
	}
	o := minio.PutObjectOptions{DisableMultipart: true}
	if version == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(version)
	}
	info, err := c.client.PutObject(ctx, bucket, key, bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		err = failed(ctx, err, bucket, key)
		if version != "" && errors.Is(err, sandbox.NotFound) {
			err = sandbox.Wrap(sandbox.Conflict, err, "s3://%s/%.200s: it is not there any more", bucket, key)
		}
		return "", err
	}
	return info.ETag, nil
}

// Object is an object that List found.
type Object struct {
	Key     string // below the address that was listed, without a slash at its beginning
	Bytes   int64
	Changed time.Time
}

// List calls each for the objects below an address, which ends without a slash.
func (c *Client) List(ctx context.Context, address string, each func(Object) error) error {
	bucket, prefix, err := c.at(address)
	if err != nil {
		return err
	}
	prefix += "/"
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends the goroutine that lists
	for o := range c.client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return failed(ctx, o.Err, bucket, prefix)
		}
		if err := each(Object{Key: strings.TrimPrefix(o.Key, prefix), Bytes: o.Size, Changed: o.LastModified}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Remove removes an object. A missing one is no error.
func (c *Client) Remove(ctx context.Context, address string) error {
	bucket, key, err := c.at(address)
	if err != nil {
		return err
	}
	err = c.client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err = failed(ctx, err, bucket, key); errors.Is(err, sandbox.NotFound) {
		return nil
	}
	return err
}
