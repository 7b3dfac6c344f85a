import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Elapsed } from "../../ui/Elapsed";
import { Field } from "../../ui/Field";
import { Findings } from "../../ui/Findings";
import { Pick } from "../../ui/Pick";
import { Refused } from "../../ui/Refused";
import { Shown, visible } from "../../ui/Shown";
import { all } from "../../ui/all";
import { install, skillsKey, type Source } from "./data";

interface Market {
  name: string;
  skills?: { name: string; description: string; problem?: string }[];
}

/** Three ways to a skill. Each asks the scan first: nothing is installed that it calls dangerous, unless a person says so. */
export function Install() {
  const known = useQueryClient();
  const [url, setUrl] = useState("");
  const act = useMutation({
    mutationFn: ({ source, strict }: { source: Source; strict: boolean }) => install(source, strict),
    onSettled: () => known.invalidateQueries({ queryKey: skillsKey }),
  });
  const begin = (source: Source) => act.mutate({ source, strict: true });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (url.trim() !== "") begin({ url: url.trim() });
  };
  return (
    <section className="split-detail" aria-label="Install a skill">
      <div className="pane-head">
        <h2>Install a skill for yourself</h2>
        <Link to="/skills" search={{}} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Close
        </Link>
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="Ways to install">
        <div className="ways">
          <div className="card">
            <h3>From this machine</h3>
            <p className="hint">A .skill file: a ZIP archive of the skill&apos;s folder.</p>
            <div>
              <Pick label="Choose a file…" types={[".skill", ".zip"]} isDisabled={act.isPending} onPick={(file) => begin({ file })} />
            </div>
          </div>
          <form className="card" onSubmit={submit}>
            <h3>From an address</h3>
            <Field hideLabel label="Address of a .skill file" placeholder="https://example.com/notes.skill" value={url} onChange={setUrl} maxLength={2048} autoComplete="off" />
            <div>
              <Button type="submit" isDisabled={act.isPending || url.trim() === ""}>
                Install
              </Button>
            </div>
          </form>
          <Listed busy={act.isPending} onBegin={begin} />
        </div>
        {act.isPending && (
          <p className="note" role="status">
            The server fetches the archive, unpacks it and scans it: <Elapsed />
          </p>
        )}
        {act.isError && <Refused error={act.error} what="It was not installed" busy={act.isPending} onAnyway={act.variables.strict ? () => act.mutate({ ...act.variables, strict: false }) : undefined} />}
        {act.isSuccess && (
          <section className="card" aria-label="Installed">
            <p role="status">
              <Link to="/skills" search={{ skill: act.data.skill_name }}>
                <Shown>{act.data.skill_name}</Shown>
              </Link>{" "}
              is installed, and on for you.
            </p>
            <Findings list={act.data.findings} none="Neither the check of SKILL.md nor the scan of its files found anything." />
          </section>
        )}
      </div>
    </section>
  );
}

/** Skills that marketplaces list. */
function Listed({ busy, onBegin }: { busy: boolean; onBegin: (s: Source) => void }) {
  const markets = useQuery({ queryKey: ["plugins", "markets"], queryFn: ({ signal }) => all<Market>("/api/marketplaces", signal), staleTime: 30_000 });
  const listed = (markets.data ?? []).flatMap((m) => (m.skills ?? []).filter((s) => s.problem === undefined).map((s) => ({ id: `${m.name}\n${s.name}`, label: visible(`${s.name} (${m.name})`) })));
  const [chosen, choose] = useState("");
  const id = chosen === "" ? (listed[0]?.id ?? "") : chosen;
  const [marketplace = "", skill = ""] = id.split("\n");
  return (
    <div className="card">
      <h3>From a marketplace</h3>
      {listed.length === 0 ? (
        <p className="hint">No marketplace lists a skill that is no part of a plugin.</p>
      ) : (
        <>
          <Choice label="Skill of a marketplace" value={id} options={listed} onChange={choose} />
          <div>
            <Button isDisabled={busy} onPress={() => onBegin({ marketplace, skill })}>
              Install
            </Button>
          </div>
        </>
      )}
    </div>
  );
}
