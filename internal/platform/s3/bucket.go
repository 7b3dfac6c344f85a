package s3

import "strings"

// Bucket is what lies below one address in a bucket.
type Bucket struct {
	Client  *Client
	address string // s3://bucket/prefix, without a slash at its end
}

// OpenBucket returns what is below an address s3://bucket/prefix. It connects to nothing yet. Invalid: no such address.
func OpenBucket(address string, o Options) (Bucket, error) {
	address = strings.TrimSuffix(address, "/")
	if _, _, err := Parse(address + "/x"); err != nil {
		return Bucket{}, err
	}
	client, err := New(o)
	return Bucket{client, address}, err
}

// Name says where it is.
func (b Bucket) Name() string { return b.address }

// At is the address of an object.
func (b Bucket) At(name string) string { return b.address + "/" + name }

// Close releases its connections.
func (b Bucket) Close() error { return b.Client.Close() }
