"""Run the notebooks as a reader in Colab would, on this GPU. --out FILE --only a,b"""
import argparse, json, os, sys, time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
ap = argparse.ArgumentParser(); ap.add_argument("--out", type=Path, required=True); ap.add_argument("--root", type=Path, required=True); ap.add_argument("--only", default=""); ap.add_argument("--jobs", type=int, default=5); ap.add_argument("--limit", type=float, default=300); o = ap.parse_args()
def text(out):
    if out.output_type == "stream": return f"{out.name}: {out.text}"
    if out.output_type == "error": return "ERROR " + "\n".join(out.traceback)[-3000:]
    d = out.data; return str(d.get("text/plain", next(iter(d), "")))
def go(path):
    import nbformat
    from nbclient import NotebookClient
    nb = nbformat.read(path, 4); before = {c.id: [text(x) for x in c.outputs] for c in nb.cells if c.cell_type == "code"}
    for c in nb.cells:
        if c.cell_type == "code": c.outputs = []
    begun = time.time(); died = ""
    try: NotebookClient(nb, timeout=240, kernel_name="python3", allow_errors=True, coalesce_streams=True, resources={"metadata": {"path": str(path.parent)}}).execute()
    except Exception as e: died = f"{type(e).__name__}: {e}"[:500]
    cells = []
    for n, c in enumerate([c for c in nb.cells if c.cell_type == "code"], 1):
        now = [text(x) for x in c.outputs]
        if now != before[c.id]: cells.append(dict(n=n, id=c.id, tags=c.metadata.get("tags", []), source=c.source[:1500], before=before[c.id], now=now))
    return dict(name=path.stem, seconds=time.time() - begun, died=died, cells=cells, errors=[c["n"] for c in cells if any(x.startswith("ERROR") for x in c["now"])])
if __name__ == "__main__":
    paths = sorted((o.root / "notebooks").glob("*.ipynb")); only = o.only.split(",") if o.only else None
    paths = [p for p in paths if not only or p.stem in only]; results = []; began = time.time()
    with ProcessPoolExecutor(o.jobs) as pool:
        fs = {pool.submit(go, p): p for p in paths}
        try:
            for f in as_completed(fs, timeout=o.limit):
                r = f.result(); results.append(r); print(f"[{time.time() - began:.0f}]", r["name"], "%.0f s" % r["seconds"], r["died"], "errors", r["errors"], "differ", [c["n"] for c in r["cells"]], flush=True)
                o.out.write_text(json.dumps(results))
        except TimeoutError: print("time up; missing", [p.stem for f, p in fs.items() if not f.done()])
    o.out.write_text(json.dumps(results)); os._exit(0)
