#!/usr/bin/python3
"""usage: run.py --wrap '' | --wrap 'bwrap ... --'   (see --help, README.md)"""
import importlib, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.dont_write_bytecode = True
import probe_runner
for f in sorted(os.listdir(here)):
    if f.startswith('p_') and f.endswith('.py'):
        importlib.import_module(f[:-3])
sys.exit(probe_runner.cli())
