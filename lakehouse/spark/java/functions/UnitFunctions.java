package lakehouse.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Units of time since 1970: of dates, and of instants in microseconds. */
final class UnitFunctions {
    private UnitFunctions() {
    }

    public static final class YearsOfDate extends BoundTransform {
        YearsOfDate(DataType type) {
            super("years", false, type, DataTypes.IntegerType);
        }

        public static int invoke(int days) {
            return Transforms.yearsOfDays(days);
        }
    }

    public static final class Years extends BoundTransform {
        Years(DataType type) {
            super("years", false, type, DataTypes.IntegerType);
        }

        public static int invoke(long micros) {
            return Transforms.yearsOfDays(Transforms.days(micros));
        }
    }

    public static final class MonthsOfDate extends BoundTransform {
        MonthsOfDate(DataType type) {
            super("months", false, type, DataTypes.IntegerType);
        }

        public static int invoke(int days) {
            return Transforms.monthsOfDays(days);
        }
    }

    public static final class Months extends BoundTransform {
        Months(DataType type) {
            super("months", false, type, DataTypes.IntegerType);
        }

        public static int invoke(long micros) {
            return Transforms.monthsOfDays(Transforms.days(micros));
        }
    }

    public static final class DaysOfDate extends BoundTransform {
        DaysOfDate(DataType type) {
            super("days", false, type, DataTypes.DateType);
        }

        public static int invoke(int days) {
            return days;
        }
    }

    public static final class Days extends BoundTransform {
        Days(DataType type) {
            super("days", false, type, DataTypes.DateType);
        }

        public static int invoke(long micros) {
            return Transforms.days(micros);
        }
    }

    public static final class Hours extends BoundTransform {
        Hours(DataType type) {
            super("hours", false, type, DataTypes.IntegerType);
        }

        public static int invoke(long micros) {
            return Transforms.hours(micros);
        }
    }
}
