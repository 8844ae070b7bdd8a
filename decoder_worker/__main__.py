from decoder_worker.main import main
from thoughtbeam.runtime.parent_watch import die_with_starter

if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # a process of the engine, in which Python runs this module before anything else
    die_with_starter()
