"""python -m tests.lab.recorded HOST SET [--at-boot]"""

from argparse import ArgumentParser

from tests.lab.recorded import SETS, become, boot_as

parser = ArgumentParser(prog="python -m tests.lab.recorded", description="Make a lab host answer like another host.")
parser.add_argument("host", help="a host that python -m tests.lab made")
parser.add_argument("set", choices=["none", *sorted(file.stem for file in SETS.glob("*.txt"))])
parser.add_argument("--at-boot", action="store_true", help="from the next boot on")
arguments = parser.parse_args()
(boot_as if arguments.at_boot else become)(arguments.host, arguments.set)
