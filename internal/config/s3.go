package config

import (
	"net/netip"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/networks"
)

// S3 is a store of objects that speaks as Amazon's S3 does.
type S3 struct {
	// Endpoint is https://host[:port]; empty means Amazon's.
	Endpoint string `yaml:"endpoint"`
	Region   string `yaml:"region"`
	// AccessKey and SecretKey are what the server reads with; empty means without credentials. SessionToken belongs
	// to credentials that expire.
	AccessKey    string `yaml:"access_key"`
	SecretKey    string `yaml:"secret_key"`
	SessionToken string `yaml:"session_token"`
	// PathStyle puts the bucket into the path and not into the host's name.
	PathStyle bool `yaml:"path_style"`
	// Buckets are the ones that users may install from, as "bucket" or "bucket/folder". Empty means none:
	// the credentials are the server's, not theirs.
	Buckets []string `yaml:"buckets"`
	// Addresses are networks that may be connected to besides the public internet, such as 10.1.0.0/16.
	Addresses []string `yaml:"addresses"`
}

// Prefixes are Addresses, parsed. A single address is a network of one.
func (s S3) Prefixes() ([]netip.Prefix, error) { return networks.Parse(s.Addresses) }

func (s S3) check(bad func(key, format string, args ...any)) {
	if _, err := s.Prefixes(); err != nil {
		bad("s3.addresses", "%s", err)
	}
	if s.Endpoint != "" && !strings.HasPrefix(s.Endpoint, "https://") && !strings.HasPrefix(s.Endpoint, "http://") {
		bad("s3.endpoint", "%q is not https://host[:port]", s.Endpoint)
	}
	if (s.AccessKey == "") != (s.SecretKey == "") {
		bad("s3.access_key", "goes together with s3.secret_key")
	}
}
