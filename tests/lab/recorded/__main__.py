"""python -m tests.lab.recorded HOST SET"""

from argparse import ArgumentParser

from tests.lab.recorded import SETS, become

parser = ArgumentParser(prog="python -m tests.lab.recorded", description="Make a lab host answer like another host.")
parser.add_argument("host", help="a host that python -m tests.lab made")
parser.add_argument("set", choices=["none", *sorted(file.stem for file in SETS.glob("*.txt"))])
arguments = parser.parse_args()
become(arguments.host, arguments.set)
