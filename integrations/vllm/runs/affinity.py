"""affinity: the plugin's threads may run on every core of the process's set, though vLLM binds the
worker's main thread to some before the connector is made. Processes of their own, as vLLM has them
by default; a set of one core can show nothing."""
import os
import tempfile

from .engines import Host, prompts_of, session_of, verdict, words_of

THREADS = "spec-"  # how their names begin


def about(pid, task):
    """(name, cores) of a thread; None: it has ended."""
    try:
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
            words = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return words["Name"], words["Cpus_allowed_list"]


def threads_of(pid):
    """(cores of the main thread, those of each thread of the plugin)."""
    tasks = [about(pid, task) for task in os.listdir(f"/proc/{pid}/task")]
    return about(pid, pid)[1], [cores for name, cores in filter(None, tasks)
                                if name.startswith(THREADS)]


def main(args):
    with tempfile.TemporaryDirectory() as folder, Host(folder, apart=True) as host:
        host.start(words_of(args, args.block[0], folder))
        host.ask(prompts_of(2, 3), tokens=2)
        found = [threads_of(pid) for pid in session_of(host.process.pid)]
    every, found = about("self", os.getpid())[1], [f for f in found if f[1]]
    for main_cores, plugin in found:
        print(f"a process whose main thread may run on {main_cores}: {len(plugin)} threads of the "
              f"plugin, which may run on {', '.join(sorted(set(plugin)))}")
    bound = sum(main_cores != every for main_cores, _ in found)
    print(f"the set is {every}; {bound} of {len(found)} main threads are bound to less")
    return verdict("every thread of the plugin may run on every core",
                   len(found) == 2 and bound > 0 and all(
                       cores == every for _, plugin in found for cores in plugin))
