"""The admin client: topics, settings, groups, offsets and all else an operator asks for or changes.

One file a family of questions, each a class that can be used alone; core.py has them all in one.
"""
