package app

import (
	"context"
	"os"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// openTracing opens the way to the collector of traces, if there is one: that of the configuration, else that of the
// variables that OpenTelemetry has for all programs. Other variables of the exporter (headers, certificates) count, too.
func (b *builder) openTracing(ctx context.Context, peers *peer.Peers) (*tracing.Tracer, error) {
	endpoint := b.cfg.Tracing.Endpoint
	if endpoint == "" && !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		if endpoint = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); endpoint == "" {
			if base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); base != "" {
				endpoint = strings.TrimRight(base, "/") + "/v1/traces"
			}
		}
	}
	t, err := tracing.Open(ctx, tracing.Options{
		Endpoint: endpoint, Ratio: float64(b.cfg.Tracing.SamplePercent) / 100, Service: environment.Or("OTEL_SERVICE_NAME", "skerry"),
		Version: buildinfo.Version(), Instance: peers.ID(), Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	b.onClose(t.Close)
	return t, nil
}
