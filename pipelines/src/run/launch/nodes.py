"""Nodes of a Ray cluster and processes on them, as srun starts them in a job of Slurm.

nodes.py list CPUS GPUS                              ids of the nodes that are up and have these
nodes.py on NODE -- COMMAND...                       one process, whose output is printed
nodes.py ranks NODE,NODE PROCESSES CPUS GPUS SECONDS -- COMMAND...   PROCESSES on each node, which have to start within SECONDS;
                                                                     ends with the worst exit code
"""

import os
import signal
import socket
import subprocess
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def pinned(node):
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


@ray.remote(num_cpus=0, max_retries=0)
def output(command, folder):
    # Ray hides the GPUs from a call that asks for none, and a check counts them
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
    return done.returncode, done.stdout


# A rank whose actor is killed would train on, on a node that counts as free: it gets a signal when its parent ends (prctl 1). Not by
# preexec_fn, which may deadlock in a process with threads.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started this one is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


# two calls at once: a signal while another call waits for the end
@ray.remote(max_concurrency=2)
class Process:
    def address(self):
        return ray.util.get_node_ip_address()

    def free_port(self):
        with socket.socket() as listener:
            listener.bind(("", 0))
            return listener.getsockname()[1]

    def start(self, command, folder, variables):
        guarded = [sys.executable, "-c", GUARD, str(os.getpid()), *command]
        self.child = subprocess.Popen(guarded, cwd=folder, env={**os.environ, **variables})

    def wait(self):
        return self.child.wait()

    def stop(self):
        self.child.send_signal(signal.SIGTERM)


def code_of(result):
    try:
        code = ray.get(result)
    except ray.exceptions.RayError as error:
        print(f"a process is lost: {error}", file=sys.stderr)
        return 1
    return code if code >= 0 else 128 - code


def ranks(nodes, processes, cpus, gpus, seconds, command):
    share = {"num_cpus": cpus / processes, "num_gpus": gpus / processes}
    where = [node for node in nodes for _ in range(processes)]
    actors = [Process.options(scheduling_strategy=pinned(node), **share).remote() for node in where]
    try:
        # actors wait for as long as their node has too little free
        address, *_ = ray.get([actor.address.remote() for actor in actors], timeout=seconds)
        port = ray.get(actors[0].free_port.remote(), timeout=seconds)
        for rank, actor in enumerate(actors):
            variables = {"RANK": rank, "WORLD_SIZE": len(actors), "LOCAL_RANK": rank % processes}
            variables |= {"MASTER_ADDR": address, "MASTER_PORT": port}
            variables = {name: str(value) for name, value in variables.items()}
            ray.get(actor.start.remote(command, os.getcwd(), variables), timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        print(f"the nodes have too little free: not all processes started in {seconds} seconds", file=sys.stderr)
        return 1
    except ray.exceptions.RayError as error:
        print(f"a process cannot be started: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: [actor.stop.remote() for actor in actors])
    return max(code_of(actor.wait.remote()) for actor in actors)


def main(args):
    split = args.index("--") if "--" in args else len(args)
    (verb, *words), command = args[:split], args[split + 1 :]
    ray.init(address="auto", logging_level="warning")
    if verb == "list":
        cpus, gpus = float(words[0]), float(words[1])
        for node in ray.nodes():
            has = node["Resources"]
            if node["Alive"] and has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus:
                print(node["NodeID"])
        return 0
    if verb == "on":
        place = output.options(scheduling_strategy=pinned(words[0]))
        code, text = ray.get(place.remote(command, os.getcwd()))
        sys.stdout.buffer.write(text)
        return code
    nodes, (processes, cpus, gpus, seconds) = words[0].split(","), map(int, words[1:])
    return ranks(nodes, processes, cpus, gpus, seconds, command)


sys.exit(main(sys.argv[1:]))
