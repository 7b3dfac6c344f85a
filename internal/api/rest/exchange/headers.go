package exchange

// Headers of the API besides those of HTTP. The clients get these names by scripts/generate.sh.
const (
	RequestIDHeader  = "X-Request-Id"
	OnBehalfOfHeader = "On-Behalf-Of"
	KeyAgeHeader     = "Idempotency-Age" // seconds since a request with an Idempotency-Key was first sent
)
