"""Every method of the program around a solution, with its answer changed."""


def wrap_all(changed):
    def wrap(method):
        return lambda *arguments, **named: changed(method(*arguments, **named))

    for kind in object.__subclasses__():
        if kind.__module__ == "__main__" or "worker" in kind.__module__:
            for name, method in list(vars(kind).items()):
                if callable(method) and not name.startswith("__"):
                    type.__setattr__(kind, name, wrap(method))
