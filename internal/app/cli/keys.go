package cli

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/config"
)

func newKeys(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Make, list and revoke bearer keys"}
	cmd.AddCommand(newKeyCreate(api),
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the keys of your tenant", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/keys", []string{"id", "name", "tenant", "user", "role", "act_for", "threads", "capabilities", "created_at", "expires_at", "last_used_at"})
		}},
		&cobra.Command{Use: "revoke ID", Short: "Revoke a key", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/keys/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}

func newKeyCreate(api *client.Client) *cobra.Command {
	var k auth.Key
	var data, redis string
	var local bool
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make a key and print it, once",
		Long: "Makes a key and prints it; it is stored only as a hash. The first key is an administrator's unless you name a role; from then on the server wants a key from every caller. With --data or --redis it writes into the state of a server that does not run (the way to the first key), with --local into that of the server whose configuration is this one's (SKERRY_CONFIG and SKERRY_…), else it asks a running server.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expires != 0 {
				at := time.Now().Add(expires).UTC().Truncate(time.Second)
				k.ExpiresAt = &at
			}
			if local {
				cfg, err := config.Load(environment.Or("SKERRY_CONFIG", ""), os.LookupEnv)
				if err != nil {
					return err
				}
				if redis = cfg.Redis; redis == "" {
					data = cfg.Data
				}
			}
			secret, err := createKey(cmd.Context(), api, k, data, redis)
			if err != nil {
				return err
			}
			return api.Say(cmd, map[string]any{"secret": secret}, secret)
		},
	}
	cmd.Flags().StringVar(&k.Name, "name", "key", "what the key is for")
	cmd.Flags().StringVar(&k.Tenant, "tenant", "", "tenant of its calls: your own when you ask a server, default with --data or --redis")
	cmd.Flags().StringVar(&k.User, "user", "local", "user of its calls")
	cmd.Flags().BoolVar(&k.Admin, "admin", false, "the same as --role admin")
	cmd.Flags().StringVar((*string)(&k.Role), "role", "", "agent, developer, admin, auditor or pack (default: agent; the first key of all is an administrator's)")
	cmd.Flags().StringSliceVar(&k.Capabilities, "capability", nil, "what tools may require of it; may be given many times")
	cmd.Flags().StringSliceVar(&k.Threads, "thread", nil, "the only threads it is good for: a name, or the beginning of names with a * behind it; may be given many times")
	cmd.Flags().BoolVar(&k.ActFor, "act-for", false, "may name another user in On-Behalf-Of")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is good for, such as 720h; 0: until it is revoked")
	cmd.Flags().StringVar(&data, "data", "", "data folder of a server that does not run")
	cmd.Flags().StringVar(&redis, "redis", "", "redis://… of the servers")
	cmd.Flags().BoolVar(&local, "local", false, "the Redis, or the data folder, of the configuration here: in a container of the server")
	cmd.MarkFlagsMutuallyExclusive("local", "data", "redis")
	return cmd
}

// newKeyBody is what POST /api/keys takes.
type newKeyBody struct {
	Name         string     `json:"name"`
	Tenant       string     `json:"tenant,omitempty"`
	User         string     `json:"user"`
	Role         string     `json:"role,omitempty"`
	Admin        bool       `json:"admin,omitempty"`
	ActFor       bool       `json:"act_for,omitempty"`
	Capabilities []string   `json:"capabilities,omitempty"`
	Threads      []string   `json:"threads,omitempty"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
}

func createKey(ctx context.Context, api *client.Client, k auth.Key, data, redis string) (string, error) {
	if data == "" && redis == "" {
		var made struct{ Secret string }
		ask := newKeyBody{
			Name: k.Name, Tenant: k.Tenant, User: k.User, Role: string(k.Role), Admin: k.Admin, ActFor: k.ActFor,
			Capabilities: k.Capabilities, Threads: k.Threads, ExpiresAt: k.ExpiresAt,
		}
		err := api.Call(ctx, http.MethodPost, "/api/keys", ask, &made)
		return made.Secret, err
	}
	return storeKey(ctx, k, data, redis)
}
